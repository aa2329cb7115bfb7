// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// brokenCluster is a cluster with Pillion, of which TestBroken breaks one part after the other. Pillion has a certificate of an authority
// that no controller renews or trusts again, as a company's own authority.
type brokenCluster struct {
	*installed

	users    map[string]string // kubeconfigs
	dir      string            // where the users work
	stranger *cluster.Authority
}

// brokenState is a state of the cluster in which something does not work.
type brokenState struct {
	name string
	does string // the first line of its golden file
	// start makes the state, and end undoes it. Both may return before the API server has noticed.
	start, end func(b *brokenCluster, t *testing.T)
	// happens returns an error as long as something else happens to a new pod that is sent as a dry run; nil: the agent is injected.
	happens func(pod *corev1.Pod, err error) error
	atOnce  bool     // nothing has to be awaited, and a pod takes long
	event   string   // the reason of the controller's Event about the Deployment api, or ""
	users   []string // nil: the usual ones
}

const (
	brokenNamespace = "shop"
	// validFor is nearly the whole lifetime of a certificate, so that its renewal is not overdue.
	validFor = 23 * time.Hour
	// extraTemplate is what the command diff is about.
	extraTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: extra}
spec: {default: true, pod: {metadata: {annotations: {example.com/extra: one}}}}
`
	agentTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec: {default: true, pod: {spec: {containers: [{name: agent, image: "agent:1"}]}}}
`
	appOfTeam = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop}
spec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: app, image: "app:1"}]}}}
`
)

// brokenCommands are what users run to find the cause.
func brokenCommands() []string {
	return []string{"check -n shop", "status -n shop", "explain deploy/api -n shop", "diff -f extra.yaml -n shop"}
}

// brokenStates are in the order in which they are made.
func brokenStates() []brokenState {
	nothing := func(*brokenCluster, *testing.T) {}
	kubectl := func(stdin string, args ...string) func(b *brokenCluster, t *testing.T) {
		return func(b *brokenCluster, t *testing.T) { b.kubectl(t, stdin, args...) }
	}
	policy := `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: registry}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.spec.containers.all(c, c.image.startsWith('registry.example/'))", message: images must come from registry.example}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: registry}
spec: {policyName: registry, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}}
`
	quota := "{apiVersion: v1, kind: ResourceQuota, metadata: {name: full, namespace: shop}, spec: {hard: {pods: \"0\"}}}"
	taken := "apiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: agent, namespace: shop}\nspec: {pod: {metadata: {annotations: {example.com/agent: two}}}}\n"
	return []brokenState{
		{name: "well", does: "everything works", start: nothing, end: nothing},
		{name: "no-rights", does: "everything works, and the user has no rights", start: nothing, end: nothing, users: []string{"nobody"}},
		{
			name: "refused", does: "nothing listens where the API server calls Pillion", happens: deniedWith("connection refused"),
			start: func(b *brokenCluster, t *testing.T) { b.killReplicas(t); b.moveEndpoints(t) }, end: (*brokenCluster).restartReplicas,
		},
		{
			name: "hung", does: "Pillion accepts connections and never answers", atOnce: true,
			start: func(b *brokenCluster, t *testing.T) {
				for _, r := range b.replicas {
					if err := r.Pause(); err != nil {
						t.Fatal(err)
					}
				}
			},
			end: (*brokenCluster).resumeReplicas,
		},
		{
			name: "scaled-to-0", does: "the Deployment of Pillion has no replicas", happens: deniedWith("no endpoints available"),
			start: func(b *brokenCluster, t *testing.T) {
				b.kubectl(t, "", "-n", pillionNamespace, "scale", "deployment/pillion", "--replicas=0")
				b.kubectl(t, "", "-n", pillionNamespace, "delete", "endpointslices", "-l", "endpointslice.kubernetes.io/managed-by=pillion-e2e")
				b.killReplicas(t)
				b.waitForReplicas(t, 0)
			},
			end: func(b *brokenCluster, t *testing.T) {
				b.kubectl(t, "", "-n", pillionNamespace, "scale", "deployment/pillion", "--replicas=2")
				b.restartReplicas(t)
				b.waitForReplicas(t, 2)
			},
		},
		{
			name: "not-ready", does: "one of the two pods of Pillion is not ready",
			start: func(b *brokenCluster, t *testing.T) { b.setReady(t, "False"); b.waitForReplicas(t, 1) },
			end:   func(b *brokenCluster, t *testing.T) { b.setReady(t, "True"); b.waitForReplicas(t, 2) },
		},
		{
			name: "no-configurations", does: "the webhook configurations are deleted", happens: checkNotInjected, event: "NotInjected",
			start: kubectl("", "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-l", "app.kubernetes.io/name=pillion"),
			end:   (*brokenCluster).applyManifests,
		},
		{
			name: "ca-bundle", does: "the caBundles are those of another authority", happens: deniedWith("unknown authority"),
			start: func(b *brokenCluster, t *testing.T) { b.setBundles(t, b.stranger.PEM) }, end: func(b *brokenCluster, t *testing.T) { b.setBundles(t, b.Authority.PEM) },
		},
		{
			name: "expired", does: "the certificate that Pillion serves has expired", happens: deniedWith("expired"),
			start: (*brokenCluster).expireCertificate,
			end: func(b *brokenCluster, t *testing.T) {
				b.setCertificate(t, time.Now().Add(validFor))
				b.setBundles(t, b.Authority.PEM)
			},
		},
		{
			name: "quota", does: "a quota of the namespace allows no pod", happens: deniedWith("exceeded quota"),
			start: kubectl(quota, "apply", "-f", "-"), end: kubectl(quota, "delete", "-f", "-"),
		},
		{
			name: "policy", does: "a ValidatingAdmissionPolicy of another team denies the pods of the namespace", happens: deniedWith("images must come from"),
			start: kubectl(policy, "apply", "-f", "-"), end: kubectl(policy, "delete", "-f", "-"),
		},
		{
			name: "invalid-template", does: "a template is not valid; it was applied while Pillion was down",
			start: func(b *brokenCluster, t *testing.T) {
				b.killReplicas(t)
				b.kubectl(t, fmt.Sprintf(clusterTemplate, "wrong", wrongTemplate), "apply", "-f", "-")
				b.restartReplicas(t)
				b.asControlled().wantReady(t, "clustersidecartemplate/wrong", "False Invalid")
			},
			end: kubectl("", "delete", "clustersidecartemplate", "wrong"),
		},
		{
			name: "name-taken", does: "a template of the namespace has the name of a template of the cluster",
			start: func(b *brokenCluster, t *testing.T) {
				b.kubectl(t, taken, "apply", "-f", "-")
				b.asControlled().wantReady(t, "sidecartemplate/agent", "False NameTaken", "-n", brokenNamespace)
			},
			end: kubectl(taken, "delete", "-f", "-"),
		},
		{
			name: "no-controller-rights", does: "the ServiceAccount of the controller has lost its rights",
			start: kubectl("", "patch", "clusterrole", "pillion-controller", "--type=json", "-p", `[{"op": "replace", "path": "/rules", "value": []}]`),
			end:   (*brokenCluster).applyManifests,
		},
		{
			name: "no-kinds", does: "the kinds of templates are deleted, and with them all templates; the running Pillion still uses them",
			start: kubectl("", "delete", "crd", "clustersidecartemplates.pillion.dev", "sidecartemplates.pillion.dev"),
			end:   nothing, // it is the last one
		},
	}
}

// TestBroken runs the commands with which users look for a cause in each state, as several users, and compares what they print.
func TestBroken(t *testing.T) {
	t.Parallel()
	needsControllerManager(t, "reports why a ReplicaSet has no pods")
	needsKubernetes(t, 37, "has these messages")
	b := newBroken(t)
	for _, state := range brokenStates() {
		t.Run(state.name, func(t *testing.T) {
			began := time.Now()
			state.start(b, t)
			if !state.atOnce {
				b.waitForFate(t, state.happens)
			}
			b.kubectl(t, fmt.Sprintf(appOfTeam, "api"), "apply", "-f", "-")
			b.waitForAPI(t, state.event)
			ready := time.Now()
			text := b.runCommands(t, &state)
			answered := time.Now()
			wantGolden(t, filepath.Join("testdata", "broken", state.name+".txt"), text)
			b.kubectl(t, "", "delete", "deployment", "api", "-n", brokenNamespace, "--cascade=foreground")
			state.end(b, t)
			if state.name != "no-kinds" {
				b.waitForFate(t, nil)
			}
			t.Logf("%s until the state is there, %s for the commands, %s to undo it", ready.Sub(began).Round(time.Millisecond),
				answered.Sub(ready).Round(time.Millisecond), time.Since(answered).Round(time.Millisecond))
		})
	}
}

// newBroken installs Pillion, a template, and a Deployment that has its sidecar.
func newBroken(t *testing.T) *brokenCluster {
	t.Helper()
	b := &brokenCluster{installed: &installed{Cluster: newCluster(t), namespace: brokenNamespace}, users: map[string]string{}, dir: t.TempDir()}
	var err error
	if b.stranger, err = cluster.NewAuthority("stranger"); err != nil {
		t.Fatal(err)
	}
	b.applyManifests(t)
	b.setCertificate(t, time.Now().Add(validFor))
	b.nodes(t, pillionNamespace)
	b.run(t)
	t.Cleanup(func() { b.resumeReplicas(t) }) // before they are stopped
	b.asControlled().start(t)
	b.kubectl(t, agentTemplate, "apply", "-f", "-")
	b.asControlled().wantReady(t, "clustersidecartemplate/agent", "True Valid")
	b.waitForFate(t, nil)
	b.kubectl(t, fmt.Sprintf(appOfTeam, "web"), "apply", "-f", "-")
	b.waitForReplicas(t, 2)
	if err := os.WriteFile(filepath.Join(b.dir, "extra.yaml"), []byte(extraTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	b.users["administrator"] = b.Kubeconfig
	for _, user := range []string{"viewer", "developer", "nobody"} {
		b.kubectl(t, "", "create", "serviceaccount", user, "-n", "default")
		token := strings.TrimSpace(b.kubectl(t, "", "create", "token", user, "-n", "default"))
		if b.users[user], err = b.WriteKubeconfig(user, token); err != nil {
			t.Fatal(err)
		}
	}
	b.kubectl(t, "", "create", "clusterrolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer")
	b.kubectl(t, "", "create", "rolebinding", "developer", "-n", brokenNamespace, "--clusterrole=edit", "--serviceaccount=default:developer")
	eventually(t, "the roles have the rights of Pillion's kinds", func(ctx context.Context) error {
		return errors.Join(
			b.mayList(ctx, "viewer", "clustersidecartemplates.pillion.dev"),
			b.mayList(ctx, "developer", "sidecartemplates.pillion.dev"))
	})
	return b
}

// mayList returns an error if a user may not list a resource in the namespace.
func (b *brokenCluster) mayList(ctx context.Context, user, resource string) error {
	_, err := b.RunKubectl(ctx, nil, "auth", "can-i", "list", resource, "-n", brokenNamespace, "--as=system:serviceaccount:default:"+user)
	return err
}

func (b *brokenCluster) asControlled() *controlled { return &controlled{b.Cluster} }

// applyManifests applies the manifests, with their caBundles.
func (b *brokenCluster) applyManifests(t *testing.T) {
	t.Helper()
	b.kubectl(t, "", "apply", "--server-side", "--force-conflicts", "--validate=strict", "-k", kustomization(t, "base"))
	b.setBundles(t, b.Authority.PEM)
}

// setBundles sets all caBundles.
func (b *brokenCluster) setBundles(t *testing.T, ca []byte) {
	t.Helper()
	for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		var list struct {
			Items []struct {
				Metadata metav1.ObjectMeta
				Webhooks []struct{ Name string }
			}
		}
		if err := json.Unmarshal([]byte(b.kubectl(t, "", "get", kind, "-l", "app.kubernetes.io/name=pillion", "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, configuration := range list.Items {
			var patch []string
			for k := range configuration.Webhooks {
				patch = append(patch, fmt.Sprintf(`{"op": "add", "path": "/webhooks/%d/clientConfig/caBundle", "value": %q}`, k, base64.StdEncoding.EncodeToString(ca)))
			}
			b.kubectl(t, "", "patch", kind, configuration.Metadata.Name, "--type=json", "-p", "["+strings.Join(patch, ",")+"]")
		}
	}
}

// setCertificate writes the Secret with a certificate that expires then.
func (b *brokenCluster) setCertificate(t *testing.T, end time.Time) {
	t.Helper()
	cert, key, err := b.Authority.ServingUntil(end, "pillion.pillion-system.svc")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := json.Marshal(corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: servingSecret, Namespace: pillionNamespace},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.kubectl(t, string(secret), "apply", "--server-side", "-f", "-")
	if b.replicas != nil {
		b.waitForServed(t)
	}
}

// expireCertificate lets Pillion serve a certificate until it expires: Pillion takes no other one that has expired. Then it lets
// the API server connect again, by another caBundle.
func (b *brokenCluster) expireCertificate(t *testing.T) {
	const served = 8 * time.Second // until all replicas serve it
	b.setCertificate(t, time.Now().Add(served))
	eventually(t, "the certificate has expired", func(context.Context) error {
		for _, leaf := range b.served(t) { //nolint:contextcheck // it has the test's context
			if time.Now().Before(leaf.NotAfter) {
				return errors.New("not yet")
			}
		}
		return nil
	})
	b.setBundles(t, append(bytes.Clone(b.Authority.PEM), b.stranger.PEM...))
}

func (b *brokenCluster) killReplicas(*testing.T) {
	for _, r := range b.replicas {
		r.Kill()
	}
}

// restartReplicas starts killed replicas again, as the kubelet does, and puts the endpoints back.
func (b *brokenCluster) restartReplicas(t *testing.T) {
	for _, r := range b.replicas {
		if err := r.Crash(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *brokenCluster) resumeReplicas(t *testing.T) {
	for _, r := range b.replicas {
		if err := r.Resume(); err != nil {
			t.Error(err)
		}
	}
}

// moveEndpoints sets the port of all endpoints to one at which nothing listens.
func (b *brokenCluster) moveEndpoints(t *testing.T) {
	const discard = 9 // RFC 863
	for k := range b.replicas {
		b.kubectl(t, "", "-n", pillionNamespace, "patch", "endpointslice", fmt.Sprint("pillion-replica-", k), "--type=json",
			"-p", fmt.Sprintf(`[{"op": "replace", "path": "/ports/0/port", "value": %d}]`, discard))
	}
}

// setReady sets the condition Ready of one of Pillion's pods, and of the first endpoint.
func (b *brokenCluster) setReady(t *testing.T, status string) {
	pods, err := b.Client.CoreV1().Pods(pillionNamespace).List(testContext(t), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pillion"})
	if err != nil || len(pods.Items) != 2 {
		t.Fatal(len(pods.Items), err)
	}
	patch := `{"status":{"conditions":[{"type":"Ready","status":"` + status + `"}]}}`
	b.kubectl(t, "", "-n", pillionNamespace, "patch", "pod", pods.Items[0].Name, "--subresource=status", "-p", patch)
	b.kubectl(t, "", "-n", pillionNamespace, "patch", "endpointslice", "pillion-replica-0", "--type=json",
		"-p", fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": %t}]`, status == "True"))
}

// waitForReplicas waits until the Deployment of Pillion has so many ready replicas.
func (b *brokenCluster) waitForReplicas(t *testing.T, ready int32) {
	t.Helper()
	eventually(t, "the Deployment of Pillion has its replicas", func(ctx context.Context) error {
		d, err := b.Client.AppsV1().Deployments(pillionNamespace).Get(ctx, "pillion", metav1.GetOptions{})
		if err == nil && (d.Status.ReadyReplicas != ready || d.Status.ObservedGeneration != d.Generation || ready == 0 && d.Status.Replicas > 0) {
			err = fmt.Errorf("%+v", d.Status)
		}
		return err
	})
}

// waitForFate waits until this happens to a new pod. The API server and Pillion notice changes some moments later.
func (b *brokenCluster) waitForFate(t *testing.T, happens func(*corev1.Pod, error) error) {
	t.Helper()
	if happens == nil {
		happens = checkInjected
	}
	eventually(t, "a new pod has its fate", func(ctx context.Context) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		}
		return happens(b.Client.CoreV1().Pods(brokenNamespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
	})
}

func checkInjected(pod *corev1.Pod, err error) error {
	if err == nil && (pod == nil || len(pod.Spec.Containers) != 2) {
		err = errors.New("it is not injected")
	}
	return err
}

func checkNotInjected(pod *corev1.Pod, err error) error {
	if err == nil && (pod == nil || len(pod.Spec.Containers) != 1) {
		err = errors.New("it is injected")
	}
	return err
}

func deniedWith(part string) func(*corev1.Pod, error) error {
	return func(_ *corev1.Pod, err error) error {
		switch {
		case err == nil:
			return errors.New("it is not denied")
		case !strings.Contains(err.Error(), part):
			return fmt.Errorf("it is not denied with %q: %w", part, err)
		}
		return nil
	}
}

// waitForAPI waits until the Deployment api has its pod, or until its ReplicaSet could not create one, and until the controller
// has reported something about it.
func (b *brokenCluster) waitForAPI(t *testing.T, event string) {
	t.Helper()
	eventually(t, "the Deployment api has a pod or a reason", func(ctx context.Context) error {
		d, err := b.Client.AppsV1().Deployments(brokenNamespace).Get(ctx, "api", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == "ReplicaFailure" && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		if d.Status.Replicas != 1 {
			return fmt.Errorf("%+v", d.Status)
		}
		return nil
	})
	if event == "" {
		return
	}
	eventually(t, "the controller has reported "+event, func(ctx context.Context) error {
		list, err := b.Client.EventsV1().Events(brokenNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for k := range list.Items {
			if e := &list.Items[k]; e.Regarding.Name == "api" && e.Reason == event {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

// runCommands runs all commands as each user, and returns what they print. Users who read the same share an entry.
func (b *brokenCluster) runCommands(t *testing.T, state *brokenState) string {
	t.Helper()
	users := state.users
	if users == nil {
		users = []string{"administrator", "viewer", "developer"}
	}
	commands := brokenCommands()
	printed := make([]string, len(commands)*len(users))
	var group errgroup.Group
	group.SetLimit(4)
	ctx := testContext(t)
	for k := range printed {
		group.Go(func() error {
			cmd := exec.CommandContext(ctx, env.binary, strings.Fields(commands[k/len(users)])...)
			cmd.Dir = b.dir
			cmd.Env = append(os.Environ(), "KUBECONFIG="+b.users[users[k%len(users)]])
			began := time.Now()
			out, err := cmd.CombinedOutput()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				return err
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Logf("%s: pillion %s took %s", users[k%len(users)], commands[k/len(users)], took.Round(time.Millisecond))
			}
			printed[k] = fmt.Sprintf("exit code %d\n%s", code, out)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("The state: " + state.does + ".\n")
	for k, command := range commands {
		of := printed[k*len(users) : (k+1)*len(users)]
		for n, text := range of {
			text = withoutRandom(text)
			var same []string
			for other := range of {
				if withoutRandom(of[other]) == text {
					same = append(same, users[other])
				}
			}
			if same[0] == users[n] {
				fmt.Fprintf(&page, "\n-- pillion %s, as %s: %s", command, strings.Join(same, " and "), text)
			}
		}
	}
	return page.String()
}

// random are the parts of output that are different in each run, and what is in their place.
var random = []struct {
	pattern *regexp.Regexp
	is      string
}{
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{12}\b`), "REVISION"},
	{regexp.MustCompile(`\bv1\.\d+\.\d+\b`), "VERSION"},
	{regexp.MustCompile(`\b(api|web|pillion|pillion-controller)-[bcdf-hj-np-tv-xz2456789]{6,10}-[bcdf-hj-np-tv-xz2456789]{5}\b`), "$1-POD"},
	{regexp.MustCompile(`\bpillion-check-[bcdf-hj-np-tv-xz2456789]{5}\b`), "pillion-check-POD"},
	{regexp.MustCompile(`\b(api|web)-[bcdf-hj-np-tv-xz2456789]{6,10}\b`), "$1-REPLICASET"},
}

func withoutRandom(text string) string {
	for _, r := range random {
		text = r.pattern.ReplaceAllString(text, r.is)
	}
	return text
}
