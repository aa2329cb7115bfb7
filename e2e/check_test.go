// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// checkReport is what the tests read of the JSON of pillion check.
type checkReport struct {
	Summary string
	Checks  []struct {
		Name, Result, Message string
		Details               []string
	}
}

// of returns the result of a check, its message and its details.
func (r *checkReport) of(name string) (result, text string) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c.Result, c.Message + " " + strings.Join(c.Details, " ")
		}
	}
	return "missing", ""
}

// bad returns the checks that are not ok, as "name: result: message and details".
func (r *checkReport) bad() (all []string) {
	for _, c := range r.Checks {
		if c.Result != "ok" {
			all = append(all, fmt.Sprintf("%s: %s: %s %s", c.Name, c.Result, c.Message, strings.Join(c.Details, " ")))
		}
	}
	return all
}

// check runs pillion check.
func check(ctx context.Context, kubeconfig string, args ...string) (r checkReport, code int, err error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, env.binary, append([]string{"check", "--kubeconfig", kubeconfig, "-o", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		return r, 0, err
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, code, fmt.Errorf("exit code %d: %s: %w", code, errs.String(), err)
	}
	return r, code, nil
}

// wantCheck waits until pillion check exits with the code, and has exactly these checks that are not ok.
// Each of them is "name: result: " and a part of the message.
func wantCheck(t *testing.T, c *cluster.Cluster, code int, args []string, want ...string) {
	t.Helper()
	var before []string // what the last complete run reported
	eventually(t, fmt.Sprintf("pillion check %v reports %q", args, want), func(ctx context.Context) error {
		r, got, err := check(ctx, c.Kubeconfig, args...)
		if err != nil {
			return fmt.Errorf("%w; before: %q", err, before)
		}
		bad := r.bad()
		before = bad
		if got != code || len(bad) != len(want) {
			return fmt.Errorf("exit code %d: %q", got, bad)
		}
		for i, w := range want {
			head, part, _ := strings.Cut(w, " ... ")
			if !strings.HasPrefix(bad[i], head) || !strings.Contains(bad[i], part) {
				return fmt.Errorf("%q is not %q", bad[i], w)
			}
		}
		return nil
	})
}

// noNodes is the result of a check that no test here can make: there are no nodes, so the API server
// cannot connect to a pod.
const noNodes = "agreement: not checked: "

// TestCheck follows pillion check from an empty cluster to an installed Pillion, and then breaks one thing
// after the other.
func TestCheck(t *testing.T) {
	t.Parallel()
	needsControllerManager(t, "reports how many replicas are ready")
	c := newCluster(t)
	if err := c.WaitForPods(testContext(t), "default"); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, c, 0, []string{"--pre", "--overlay", "self-signed"})
	wantCheck(t, c, 1, []string{"--pre"}, "cert-manager: failed: the API server does not serve cert-manager.io/v1")
	wantCheck(t, c, 1, nil, "installation: failed: ")
	manager, err := c.StartCertManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantCheck(t, c, 0, []string{"--pre"})

	i := install(t, c, "cert-manager")
	i.nodes(t, pillionNamespace)
	if _, err := c.StartController(t.Context(), env.binary); err != nil {
		t.Fatal(err)
	}
	i.kubectl(t, fmt.Sprintf(clusterTemplate, "agent", "one"), "apply", "-f", "-")
	i.waitForInjection(t)
	wantCheck(t, c, 0, nil, noNodes)
	r, _, err := check(testContext(t), c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"reachable": "2 endpoints accept connections", "replicas": "2 of 2 ready", "controller": "1 of 1 ready",
		"namespaces": "opted in: shop", "dry-run pod": "in the namespace shop, it got agent",
	} {
		if result, text := r.of(name); result != "ok" || !strings.HasPrefix(text, want) {
			t.Errorf("%s is %s: %s, want %s", name, result, text, want)
		}
	}
	wantCheck(t, c, 1, []string{"--pre", "--system-namespace", "elsewhere"}, "other installations: failed: ")
	wantCheck(t, c, 0, []string{"--pre"}, "other installations: warning: Pillion is installed already")

	t.Run("caBundle", func(t *testing.T) { i.checkBundle(t, manager) })
	t.Run("replica", i.checkReplica)
	t.Run("template", i.checkTemplate)
	t.Run("rights", i.checkRights)
	t.Run("denied", i.checkDenied)
	t.Run("no namespace", i.checkNoNamespace)
	t.Run("nobody", i.checkNobody)
	t.Run("developer", i.checkDeveloper)
	wantCheck(t, c, 0, nil, noNodes)
}

func (i *installed) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := i.RunKubectl(testContext(t), []byte(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// checkBundle gives one webhook the CA of somebody else.
func (i *installed) checkBundle(t *testing.T, manager *cluster.CertManager) {
	if err := manager.PauseInjector(); err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": %q}]`, base64.StdEncoding.EncodeToString(i.Authority.PEM))
	i.kubectl(t, "", "patch", "mutatingwebhookconfiguration", "pillion", "--type=json", "-p", patch)
	wantCheck(t, i.Cluster, 1, nil,
		"certificate: failed: pillion certs reports  ... MutatingWebhookConfiguration/pillion: the caBundle of namespace.mutate.pillion.dev does not verify",
		noNodes, "dry-run pod: failed: ")
	if err := manager.ResumeInjector(); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, i.Cluster, 0, nil, noNodes)
}

// checkReplica makes one pod of Pillion not ready.
func (i *installed) checkReplica(t *testing.T) {
	pods, err := i.Client.CoreV1().Pods(pillionNamespace).List(testContext(t), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pillion"})
	if err != nil || len(pods.Items) != 2 {
		t.Fatal(len(pods.Items), err)
	}
	ready := func(status string) {
		i.kubectl(t, "", "-n", pillionNamespace, "patch", "pod", pods.Items[0].Name, "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Ready","status":"`+status+`"}]}}`)
	}
	ready("False")
	wantCheck(t, i.Cluster, 1, nil, "replicas: failed: 1 of 2 ready", noNodes)
	ready("True")
	wantCheck(t, i.Cluster, 0, nil, noNodes)
}

// checkTemplate creates a template whose name is taken.
func (i *installed) checkTemplate(t *testing.T) {
	taken := strings.ReplaceAll(fmt.Sprintf(teamTemplate, "agent", "two"), "team-a", i.namespace)
	i.kubectl(t, taken, "apply", "-f", "-")
	wantCheck(t, i.Cluster, 1, nil, noNodes, "templates: failed: some are not accepted ... sidecartemplate/shop/agent: NameTaken: The ClusterSidecarTemplate agent takes precedence")
	i.kubectl(t, taken, "delete", "-f", "-")
	wantCheck(t, i.Cluster, 0, nil, noNodes)
}

// checkRights gives the server all rights, and then takes those of the controller.
func (i *installed) checkRights(t *testing.T) {
	i.kubectl(t, "", "create", "clusterrolebinding", "too-much", "--clusterrole=cluster-admin", "--serviceaccount=pillion-system:pillion")
	wantCheck(t, i.Cluster, 0, nil, "RBAC: warning: the ServiceAccounts have rights that they do not need pillion may create pods in all namespaces pillion may get secrets", noNodes)
	i.kubectl(t, "", "delete", "clusterrolebinding", "too-much")
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	component := filepath.Join(root, "manifests", "components", "rollout")
	i.kubectl(t, "", "apply", "-f", filepath.Join(component, "rbac.yaml"))
	wantCheck(t, i.Cluster, 0, nil, "RBAC: warning: a ServiceAccount may change more than it needs, because a policy is not in force "+
		"pillion-controller may patch deployments.apps, and the ValidatingAdmissionPolicy pillion-controller-rollout is not in force", noNodes)
	i.kubectl(t, "", "apply", "-f", filepath.Join(component, "policy.yaml"))
	wantCheck(t, i.Cluster, 0, nil, noNodes)
	i.kubectl(t, "", "delete", "-f", filepath.Join(component, "policy.yaml"), "-f", filepath.Join(component, "rbac.yaml"))
	role := i.kubectl(t, "", "get", "clusterrole", "pillion-controller", "-o", "json")
	i.kubectl(t, "", "patch", "clusterrole", "pillion-controller", "--type=json", "-p", `[{"op": "replace", "path": "/rules", "value": []}]`)
	eventually(t, "the rights are missing", func(ctx context.Context) error {
		r, code, err := check(ctx, i.Kubeconfig)
		result, text := r.of("RBAC")
		const want = "pillion-controller may not get, list, watch pods "
		if err == nil && (code != 1 || result != "failed" || !strings.Contains(text, want)) {
			err = fmt.Errorf("exit code %d, %s: %s", code, result, text)
		}
		return err
	})
	var fields map[string]any
	if err := json.Unmarshal([]byte(role), &fields); err != nil {
		t.Fatal(err)
	}
	rules, err := json.Marshal(fields["rules"])
	if err != nil {
		t.Fatal(err)
	}
	i.kubectl(t, "", "patch", "clusterrole", "pillion-controller", "--type=json", "-p", `[{"op": "replace", "path": "/rules", "value": `+string(rules)+`}]`)
	wantCheck(t, i.Cluster, 0, nil, noNodes)
}

// checkDenied lets others than Pillion deny the pod. The report is complete, and another namespace shows that Pillion works.
func (i *installed) checkDenied(t *testing.T) {
	const quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: full}, spec: {hard: {pods: \"0\"}}}"
	i.kubectl(t, quota, "apply", "-n", i.namespace, "-f", "-")
	wantCheck(t, i.Cluster, 0, nil, noNodes, "dry-run pod: not checked: in the namespace shop, the API server denies it, but not because of Pillion ... exceeded quota")
	i.kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: tools, labels: {pillion.dev/inject: enabled}}}", "apply", "-f", "-")
	if err := i.WaitForPods(testContext(t), "tools"); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, i.Cluster, 0, nil, noNodes)
	i.kubectl(t, "", "delete", "namespace", "tools", "--wait=false")
	i.kubectl(t, quota, "delete", "-n", i.namespace, "-f", "-")
	wantCheck(t, i.Cluster, 0, nil, noNodes)
}

// checkNoNamespace opts out of the only namespace. A pod can still be sent to a namespace by its name.
func (i *installed) checkNoNamespace(t *testing.T) {
	i.kubectl(t, "", "label", "namespace", i.namespace, injectLabel+"-")
	wantCheck(t, i.Cluster, 0, nil, noNodes, "namespaces: warning: none opted in", "dry-run pod: not checked: no namespace opted in")
	wantCheck(t, i.Cluster, 0, []string{"--namespace", i.namespace}, noNodes, "namespaces: warning: none opted in")
	i.kubectl(t, "", "label", "namespace", i.namespace, injectLabel+"=enabled")
	wantCheck(t, i.Cluster, 0, nil, noNodes)
}

// checkDeveloper lets a user with the role edit in one namespace ask about a workload there. The command that the answer names gives
// the user all rights that a whole answer needs. Nothing secret is among them.
func (i *installed) checkDeveloper(t *testing.T) {
	i.kubectl(t, "", "create", "serviceaccount", "developer", "-n", i.namespace)
	i.kubectl(t, "", "create", "rolebinding", "developer", "-n", i.namespace, "--clusterrole=edit", "--serviceaccount="+i.namespace+":developer")
	i.kubectl(t, "", "create", "deployment", "web", "-n", i.namespace, "--image=web:1", "--replicas=0")
	kubeconfig, err := i.WriteKubeconfig("developer", strings.TrimSpace(i.kubectl(t, "", "create", "token", "developer", "-n", i.namespace)))
	if err != nil {
		t.Fatal(err)
	}
	explain := func(ctx context.Context) string {
		out, _ := exec.CommandContext(ctx, env.binary, "explain", "deploy/web", "-n", i.namespace, "--kubeconfig", kubeconfig).CombinedOutput()
		return string(out)
	}
	var command []string
	eventually(t, "the answer without rights", func(ctx context.Context) error {
		text := explain(ctx)
		_, quoted, _ := strings.Cut(text, "`kubectl ")
		quoted, _, ok := strings.Cut(quoted, "`")
		if command = strings.Fields(quoted); !ok || !strings.Contains(text, "its namespace has the label pillion.dev/inject: enabled") || strings.Count(text, "Note:") != 1 {
			return errors.New(text)
		}
		return nil
	})
	defer func() { i.kubectl(t, "", "delete", "clusterrolebinding", command[2]) }()
	i.kubectl(t, "", command...)
	eventually(t, "the whole answer", func(ctx context.Context) error {
		if text := explain(ctx); !strings.Contains(text, "agent: injected") || strings.Contains(text, "not allowed") || strings.Contains(text, "unknown") {
			return errors.New(text)
		}
		return nil
	})
	account := "--as=system:serviceaccount:" + i.namespace + ":developer"
	for _, may := range []string{"get clustersidecartemplates", "get configmap/pillion-templates -n " + pillionNamespace, "list mutatingwebhookconfigurations"} {
		i.kubectl(t, "", append(strings.Fields("auth can-i "+may), account)...)
	}
	for _, mayNot := range []string{"create clustersidecartemplates", "get secrets -n " + pillionNamespace, "list configmaps -n " + pillionNamespace, "get pods -n " + pillionNamespace, "list sidecartemplates -n " + pillionNamespace, "update mutatingwebhookconfigurations", "list namespaces"} {
		if out, err := i.RunKubectl(testContext(t), nil, append(strings.Fields("auth can-i "+mayNot), account)...); err == nil {
			t.Errorf("may %s: %s", mayNot, out)
		}
	}
}

// checkNobody checks that a user without rights learns what is unknown.
func (i *installed) checkNobody(t *testing.T) {
	i.kubectl(t, "", "create", "serviceaccount", "nobody", "-n", i.namespace)
	token := strings.TrimSpace(i.kubectl(t, "", "create", "token", "nobody", "-n", i.namespace))
	kubeconfig, err := i.WriteKubeconfig("nobody", token)
	if err != nil {
		t.Fatal(err)
	}
	r, code, err := check(testContext(t), kubeconfig)
	if err != nil || code != 0 {
		t.Fatal(code, err)
	}
	for _, name := range []string{"RBAC", "registered", "certificate", "replicas", "agreement", "controller", "templates", "namespaces", "dry-run pod"} {
		if result, text := r.of(name); result != "not checked" {
			t.Errorf("%s is %s: %s", name, result, text)
		}
	}
	pre, code, err := check(testContext(t), kubeconfig, "--pre")
	result, text := pre.of("rights to install")
	if err != nil || code != 1 || result != "failed" || !strings.Contains(text, "you may not create, get, patch namespaces pillion-system") {
		t.Errorf("exit code %d, %v: the rights are %s: %s", code, err, result, text)
	}
	if result, text := pre.of("native sidecars"); result != "not checked" || !strings.HasPrefix(text, "you are not allowed to create pods in the namespace default") {
		t.Errorf("native sidecars are %s: %s", result, text)
	}
}
