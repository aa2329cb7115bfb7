// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	callerName     = "kube-apiserver-admission"
	callerIssuer   = "https://kubernetes.default.svc"
	mutateAudience = "https://pillion.pillion-system.svc:443/mutate"
)

// callerCase is one way for an API server to show who it is.
type callerCase struct {
	name  string
	flags []string               // of Pillion
	user  *clientcmdapi.AuthInfo // the API server's credential for Pillion's host
	way   string                 // in the metric
	// startsWrong: the API server's first credential is not the right one.
	startsWrong bool
	// service: API servers call Pillion by the name of a Service, as in a cluster.
	service bool
	// entry is the name of the user's entry in the kubeconfig, given Pillion's host; nil for the host itself.
	entry func(host string) string
	// optional: an API server that shows nothing is let in.
	optional bool
	// spoil makes the API server's credential wrong, and repair makes the credential that it has
	// right.
	spoil, repair func(*testing.T)
	// wrong and reason are the beginning of the sentence, and the reason, of the denial in between.
	wrong, reason string
}

func callerCases(t *testing.T) []callerCase {
	t.Helper()
	return append([]callerCase{tokenCase(t), serviceCase(t), anyHostCase(t), anyServiceCase(t), anyServicePortCase(t), tokenFileCase(t), basicCase(t), certificateCase(t), certificateNameCase(t), optionalCase(t)},
		serviceAccountCases(t)...)
}

// tokenCase replaces the token in Pillion's file, which is wrong, and then adds the new token to the old one, which is right: the API
// server still sends the old one.
func tokenCase(t *testing.T) callerCase {
	file := callerFile(t, "first-token\n")
	return callerCase{
		name: "token", way: "token", user: &clientcmdapi.AuthInfo{Token: "first-token"},
		flags: []string{"--caller-token-file", file},
		spoil: func(t *testing.T) { writeFile(t, file, "second-token\n") },
		wrong: "the bearer token is unknown", reason: "wrong_token",
		repair: func(t *testing.T) { writeFile(t, file, "second-token\nfirst-token\n") },
	}
}

func serviceCase(t *testing.T) callerCase {
	c := tokenCase(t)
	c.name, c.service = "service", true
	return c
}

// anyHostCase has the entry *, for hosts without an entry of their own. The other entries have other tokens, so the case shows that
// an entry of a host takes precedence.
func anyHostCase(t *testing.T) callerCase {
	c := ownTokenCase(t, "any-host")
	c.name, c.entry = "any host", func(string) string { return "*" }
	return c
}

// anyServiceCase has the entry *.SUFFIX, for all hosts below the suffix, here the Services of a namespace. It takes precedence over *.
func anyServiceCase(t *testing.T) callerCase {
	c := ownTokenCase(t, "any-service")
	c.name, c.service = "any service of a namespace", true
	c.entry = func(host string) string { return "*" + host[strings.IndexByte(host, '.'):] }
	return c
}

// anyServicePortCase has the entry *.SUFFIX:PORT. It takes precedence over the same entry without the port.
func anyServicePortCase(t *testing.T) callerCase {
	c := ownTokenCase(t, "any-service-at-the-port")
	c.name, c.service = "any service of a namespace, at the port", true
	c.entry = func(host string) string { return "*" + host[strings.IndexByte(host, '.'):] + ":443" }
	return c
}

// ownTokenCase is tokenCase with a token that no other case has.
func ownTokenCase(t *testing.T, token string) callerCase {
	c := tokenCase(t)
	file := callerFile(t, token+"\n")
	c.user, c.flags = &clientcmdapi.AuthInfo{Token: token}, []string{"--caller-token-file", file}
	c.spoil = func(t *testing.T) { writeFile(t, file, "another-token\n") }
	c.repair = func(t *testing.T) { writeFile(t, file, "another-token\n"+token+"\n") }
	return c
}

// tokenFileCase replaces the token in the API server's file, which the API server reads again every 50 seconds.
func tokenFileCase(t *testing.T) callerCase {
	file, theirs := callerFile(t, "first-token\n"), callerFile(t, "first-token")
	return callerCase{
		name: "token file", way: "token", user: &clientcmdapi.AuthInfo{TokenFile: theirs},
		flags: []string{"--caller-token-file", file},
		spoil: func(t *testing.T) { writeFile(t, file, "second-token\n") },
		wrong: "the bearer token is unknown", reason: "wrong_token",
		repair: func(t *testing.T) { writeFile(t, theirs, "second-token") },
	}
}

func basicCase(t *testing.T) callerCase {
	file := callerFile(t, callerName+":first password\n")
	return callerCase{
		name: "basic", way: "password", user: &clientcmdapi.AuthInfo{Username: callerName, Password: "first password"},
		flags: []string{"--caller-basic-auth-file", file},
		spoil: func(t *testing.T) { writeFile(t, file, callerName+":second password\n") },
		wrong: "the user or the password is wrong", reason: "wrong_password",
		repair: func(t *testing.T) {
			writeFile(t, file, callerName+":second password\n"+callerName+":first password\n")
		},
	}
}

// certificateCase replaces the CA that Pillion accepts. The new CA counts at once, on existing connections, too. The API server sends
// its new certificate on its next connection.
func certificateCase(t *testing.T) callerCase {
	before, after := newAuthority(t), newAuthority(t)
	file, user := callerFile(t, string(before.PEM)), certificateUser(t)
	writeClientCertificate(t, user, before, callerName)
	return callerCase{
		name: "certificate", way: "certificate", user: user,
		flags: []string{"--caller-ca-file", file, "--caller-name", callerName},
		spoil: func(t *testing.T) { writeFile(t, file, string(after.PEM)) },
		wrong: "the client certificate is not from an accepted CA", reason: "unknown_certificate",
		repair: func(t *testing.T) { writeClientCertificate(t, user, after, callerName) },
	}
}

// certificateNameCase has a certificate that an accepted CA has signed for a name that is not accepted.
func certificateNameCase(t *testing.T) callerCase {
	authority, user := newAuthority(t), certificateUser(t)
	writeClientCertificate(t, user, authority, "system:node:worker-1")
	return callerCase{
		name: "certificate of another name", way: "certificate", user: user, startsWrong: true,
		flags: []string{"--caller-ca-file", callerFile(t, string(authority.PEM)), "--caller-name", "another", "--caller-name", callerName},
		wrong: `the client certificate is for "system:node:worker-1"`, reason: "wrong_name",
		repair: func(t *testing.T) { writeClientCertificate(t, user, authority, callerName) },
	}
}

func optionalCase(t *testing.T) callerCase {
	file := callerFile(t, "first-token\n")
	return callerCase{
		name: "optional", way: "token", user: &clientcmdapi.AuthInfo{Token: "second-token"}, startsWrong: true, optional: true,
		flags: []string{"--caller-token-file", file},
		wrong: "the bearer token is unknown", reason: "wrong_token",
		repair: func(t *testing.T) { writeFile(t, file, "first-token\nsecond-token\n") },
	}
}

// serviceAccountCases have the cluster's own issuer, whose keys Pillion asks the API server for.
func serviceAccountCases(t *testing.T) []callerCase {
	ns := plainNamespace(t)
	flags := []string{
		"--caller-jwt-issuer", callerIssuer, "--caller-jwt-audience", "pillion",
		"--caller-jwt-subject", "system:serviceaccount:" + ns + ":" + callerName,
	}
	makeServiceAccount(t, ns, callerName)
	makeServiceAccount(t, ns, "stranger")
	theCase := func(name, audience, account string) callerCase {
		theirs := callerFile(t, tokenOf(t, env.Client, ns, account, authenticationv1.TokenRequestSpec{Audiences: []string{audience}}))
		return callerCase{
			name: name, way: "service_account", user: &clientcmdapi.AuthInfo{TokenFile: theirs}, flags: flags, startsWrong: true,
			repair: func(t *testing.T) {
				writeFile(t, theirs, tokenOf(t, env.Client, ns, callerName, authenticationv1.TokenRequestSpec{Audiences: []string{"pillion"}}))
			},
		}
	}
	audience := theCase("service account, another audience", "someone-else", callerName)
	audience.wrong, audience.reason = `the token is for the audiences ["someone-else"]`, "wrong_audience"
	subject := theCase("service account, another one", "pillion", "stranger")
	subject.wrong, subject.reason = `the token is for "system:serviceaccount:`+ns+`:stranger"`, "wrong_subject"
	return []callerCase{audience, subject}
}

// TestBoundTokens checks that a token that is bound to a webhook configuration (KEP-6060) is valid
// only for the webhook of that configuration. The tested API servers do not send such tokens.
func TestBoundTokens(t *testing.T) {
	t.Parallel()
	needsKubernetes(t, 37, "binds tokens to webhook configurations")
	server, err := env.StartAPIServer(t.Context(), "--feature-gates=APIServerWebhookAuthenticationToken=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // how it ends does not matter
	ns := plainNamespace(t)
	makeServiceAccount(t, ns, callerName)
	mayAttest(t, ns, callerName)
	g := startGuarded(t, callerCase{flags: []string{
		"--caller-jwt-issuer", callerIssuer, "--caller-jwt-audience", mutateAudience, "--caller-jwt-audience", "pillion",
	}})

	bound := func(kind, name, audience string) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{
			Audiences:      []string{audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "admissionregistration.k8s.io/v1", Kind: kind, Name: name},
			Attestations:   map[string]authenticationv1.AttestationValue{authenticationv1.AttestationAdmissionReviewAPIGroups: {"*"}},
		}
	}
	other := env.manifests.ForNamespaces(ns, map[string]string{callersLabel: ns})
	if err := env.InstallMutating(testContext(t), other, nowhere()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(cleanupContext(), ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	const mutating, validating = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
	for name, c := range map[string]struct {
		spec authenticationv1.TokenRequestSpec
		path string
		want string // "" if it is let in
	}{
		"mutating":              {spec: bound(mutating, pillionConfiguration, mutateAudience), path: "/mutate"},
		"validating":            {spec: bound(validating, pillionConfiguration, mutateAudience), path: "/validate"},
		"another kind":          {bound(mutating, pillionConfiguration, mutateAudience), "/validate", "the token is not bound to the "},
		"another configuration": {bound(mutating, ns, mutateAudience), "/mutate", "the token is not bound to the "},
		"another audience":      {bound(mutating, pillionConfiguration, "https://elsewhere.example/"), "/mutate", "the token is for the audiences"},
		"not bound":             {authenticationv1.TokenRequestSpec{Audiences: []string{"pillion"}}, "/mutate", "the token is for"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := g.pillion.Endpoint.Post(testContext(t), c.path, tokenOf(t, server.Client, ns, callerName, c.spec), review(t))
			if err != nil {
				t.Fatal(err)
			}
			// Whether the pod is allowed does not matter: /validate denies it, because it lacks its sidecar.
			if c.want == "" && (answer.Status != http.StatusOK || !strings.Contains(answer.Body, `"allowed":`)) {
				t.Errorf("the token is not taken: %d %s", answer.Status, answer.Body)
			}
			if c.want != "" && (answer.Status != http.StatusUnauthorized || !strings.Contains(answer.Body, unauthorized+c.want)) {
				t.Errorf("the answer is %d %s, want %q", answer.Status, answer.Body, c.want)
			}
		})
	}
}

// mayAttest lets a ServiceAccount have tokens for the reviews of every API group.
func mayAttest(t *testing.T, ns, name string) {
	t.Helper()
	api, ctx := env.Client.RbacV1(), testContext(t)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"attest"}, APIGroups: []string{"authentication.k8s.io"},
			Resources: []string{authenticationv1.AttestationAdmissionReviewAPIGroups}, ResourceNames: []string{"*"},
		}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}
	if _, err := api.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func review(t *testing.T) []byte {
	t.Helper()
	pod, err := json.Marshal(newPod("web"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{
			"uid": "1", "operation": "CREATE", "namespace": markerNamespace,
			"resource": map[string]string{"version": "v1", "resource": "pods"}, "object": json.RawMessage(pod),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func makeServiceAccount(t *testing.T, ns, name string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := env.Client.CoreV1().ServiceAccounts(ns).Create(testContext(t), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func tokenOf(t *testing.T, client kubernetes.Interface, ns, name string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	request, err := client.CoreV1().ServiceAccounts(ns).CreateToken(testContext(t), name, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("a token of %s/%s: %v", ns, name, err)
	}
	return request.Status.Token
}

func newAuthority(t *testing.T) *cluster.Authority {
	t.Helper()
	authority, err := cluster.NewAuthority("callers")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func certificateUser(t *testing.T) *clientcmdapi.AuthInfo {
	t.Helper()
	dir := t.TempDir()
	return &clientcmdapi.AuthInfo{ClientCertificate: filepath.Join(dir, "tls.crt"), ClientKey: filepath.Join(dir, "tls.key")}
}

func writeClientCertificate(t *testing.T, user *clientcmdapi.AuthInfo, authority *cluster.Authority, name string) {
	t.Helper()
	cert, key, err := authority.ClientCertificate(name)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, user.ClientCertificate, string(cert))
	writeFile(t, user.ClientKey, string(key))
}

// callerFile writes a file of its own.
func callerFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	writeFile(t, path, content)
	return path
}

// writeFile replaces a file at once, as a mounted Secret is.
func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
