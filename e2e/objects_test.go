// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// authors is a cluster in which two teams and a platform team write templates.
type authors struct {
	*installed
	objects dynamic.Interface
}

// annotates is a template that annotates every pod with its name, or NAMESPACE/NAME, and a string.
func annotates(id, text string) string {
	kind, metadata, name := "ClusterSidecarTemplate", "name: "+id, id
	if namespace, own, ok := strings.Cut(id, "/"); ok {
		kind, metadata, name = "SidecarTemplate", "name: "+own+", namespace: "+namespace, own
	}
	return fmt.Sprintf("---\napiVersion: pillion.dev/v1alpha1\nkind: %s\nmetadata: {%s}\nspec: {default: true, pod: {metadata: {annotations: {authors.example.com/%s: %q}}}}\n", kind, metadata, name, text)
}

// broken is a template that Pillion rejects.
func broken(id string) string {
	return strings.Replace(annotates(id, "broken"), "metadata: {annotations", "metadata: {anotations", 1)
}

// TestObjects follows templates in the API server from their first apply to their end.
func TestObjects(t *testing.T) {
	t.Parallel()
	a := &authors{installed: install(t, newCluster(t), "self-signed")}
	var err error
	if a.objects, err = dynamic.NewForConfig(a.Config); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"team-a", "team-b"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{injectLabel: "enabled"}}}
		if _, err := a.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := a.WaitForPods(testContext(t), name); err != nil {
			t.Fatal(err)
		}
	}
	a.waitForInjection(t)

	t.Run("explain", a.explain)
	t.Run("two tenants", a.tenants)
	t.Run("hidden container", a.hiddenContainer)
	t.Run("mistakes", a.mistakes)
	t.Run("webhook down", a.webhookDown)
	t.Run("upgrade", a.upgrade)
	t.Run("managers", a.managers)
	t.Run("round trip", a.roundTrip)
}

// apply applies templates, and returns what kubectl prints.
func (a *authors) apply(t *testing.T, texts ...string) string {
	t.Helper()
	out, err := a.try(testContext(t), t, "apply -f -", strings.Join(texts, ""))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (a *authors) try(ctx context.Context, t *testing.T, args, stdin string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "input.yaml")
	if err := os.WriteFile(file, []byte(stdin), 0o600); err != nil {
		return "", err
	}
	u := &user{installed: a.installed, dir: t.TempDir()}
	out, code, err := u.run(ctx, "kubectl "+args+" <"+file)
	if err == nil && code != 0 {
		err = errors.New(out)
	}
	return out, err
}

// want waits until pods of a namespace get these annotations, "name=text", from every replica.
func (a *authors) want(t *testing.T, namespace string, all ...string) {
	t.Helper()
	since := time.Now()
	eventually(t, fmt.Sprintf("pods of %s get %v", namespace, all), func(ctx context.Context) error {
		for range 4 * len(a.replicas) { // the API server keeps a connection to one replica, and balances anew for the next one
			pod, err := a.Client.CoreV1().Pods(namespace).Create(ctx, newPod("web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			var got []string
			for key, text := range pod.Annotations {
				if name, ok := strings.CutPrefix(key, "authors.example.com/"); ok {
					got = append(got, name+"="+text)
				}
			}
			if slices.Sort(got); !slices.Equal(got, all) {
				return fmt.Errorf("they get %v", got)
			}
		}
		return a.agree(ctx)
	})
	t.Logf("pods of %s get %v after %s, with these creates", namespace, all, time.Since(since).Round(10*time.Millisecond))
}

// agree reports replicas with different templates.
func (a *authors) agree(ctx context.Context) error {
	all, err := a.templateRevisions(ctx)
	if err == nil && len(slices.Compact(slices.Clone(all))) != 1 {
		err = fmt.Errorf("the replicas have the revisions %v", all)
	}
	return err
}

// said waits until a replica reports this about its templates, or does not any more.
func (a *authors) said(t *testing.T, r *cluster.Replica, want bool, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("a replica says %q: %t", text, want), func(ctx context.Context) error {
		_, said, err := r.Readiness(ctx)
		if err == nil && strings.Contains(said, text) != want {
			err = errors.New(said)
		}
		return err
	})
}

// tenants checks that two namespaces can use the same name, and that neither has it any more if the cluster uses it.
func (a *authors) tenants(t *testing.T) {
	out := a.apply(t, annotates("shared", "1"), annotates("team-a/log", "a"), annotates("team-b/log", "b"))
	if !strings.Contains(out, "clustersidecartemplate.pillion.dev/shared created\nsidecartemplate.pillion.dev/log created\n") {
		t.Error(out)
	}
	a.want(t, "team-a", "log=a", "shared=1")
	a.want(t, "team-b", "log=b", "shared=1")
	a.want(t, "shop", "shared=1")
	for _, command := range []string{"inject -f -", "explain -f - --all -o yaml"} { // without --templates
		file := filepath.Join(t.TempDir(), "pod.yaml")
		if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team-a}\nspec: {containers: [{name: web, image: web}]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		u := &user{installed: a.installed, dir: t.TempDir()}
		out, code, err := u.run(testContext(t), env.binary+" "+command+" <"+file)
		if err != nil || code != 0 || strings.Count(out, "authors.example.com/log") != 1 || !strings.Contains(out, "authors.example.com/shared") {
			t.Errorf("pillion %s: exit code %d, %v: %s", command, code, err, out)
		}
	}
	a.apply(t, annotates("team-a/log", "a2"), annotates("shared", "2"))
	a.want(t, "team-a", "log=a2", "shared=2")
	a.want(t, "team-b", "log=b", "shared=2")
	if out := a.apply(t, annotates("log", "everywhere")); !strings.Contains(out, "Warning: the SidecarTemplate of this name is no longer used in team-a, team-b; use another name to keep it") {
		t.Error(out)
	}
	a.want(t, "team-a", "log=everywhere", "shared=2")
	a.want(t, "shop", "log=everywhere", "shared=2")
	a.said(t, a.replicas[0], true, "sidecartemplate/team-a/log: metadata.name: the ClusterSidecarTemplate of this name takes precedence (clustersidecartemplate/log)")
	if out := a.apply(t, annotates("team-a/log", "a3")); !strings.Contains(out, "Warning: the ClusterSidecarTemplate of this name takes precedence, so this one is not used; use another name") {
		t.Error(out)
	}
	for _, line := range []string{"delete cst log shared", "delete sct -n team-b log"} {
		if _, err := a.try(testContext(t), t, line, ""); err != nil {
			t.Error(err)
		}
	}
	a.want(t, "team-a", "log=a3")
	a.want(t, "team-b")
	if out, err := a.try(testContext(t), t, "get pillion -n team-a", ""); err != nil || !strings.Contains(out, "sidecartemplate.pillion.dev/log ") { // the category has both kinds
		t.Error(out, err)
	}
	if _, err := a.try(testContext(t), t, "delete sct -n team-a --all", ""); err != nil {
		t.Error(err)
	}
	a.want(t, "team-a")
}

// hiddenContainer checks that a template of the cluster adds to a container even if a tenant puts it into a template instead of the
// pod.
func (a *authors) hiddenContainer(t *testing.T) {
	a.apply(t, `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: harden}
spec:
  required: true
  forEachContainer:
  - initContainers: true
    add: {env: [{name: HARDENED, value: "yes"}], securityContext: {allowPrivilegeEscalation: false}}
---
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: hidden, namespace: team-a}
spec:
  default: true
  pod: {spec: {containers: [{name: hidden, image: "registry.example/hidden:1", securityContext: {runAsUser: 0}}]}}
`)
	eventually(t, "the tenant's container is hardened", func(ctx context.Context) error {
		for range 4 * len(a.replicas) {
			pod, err := a.Client.CoreV1().Pods("team-a").Create(ctx, newPod("web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "hidden" }) {
				return errors.New("it is not in the pod")
			}
			for _, c := range pod.Spec.Containers {
				if c.SecurityContext == nil || c.SecurityContext.AllowPrivilegeEscalation == nil || !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "HARDENED" }) {
					return fmt.Errorf("%s is not hardened: %+v", c.Name, c)
				}
			}
		}
		return nil
	})
	for _, line := range []string{"delete cst harden", "delete sct -n team-a hidden"} {
		if _, err := a.try(testContext(t), t, line, ""); err != nil {
			t.Error(err)
		}
	}
	a.want(t, "team-a")
}

// mistakes are rejected with the field, and doubts are warnings.
func (a *authors) mistakes(t *testing.T) {
	_, err := a.try(testContext(t), t, "apply -f -", `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  labelDomains: [team]
  pod: {spec: {initContainers: [{name: agent, imgae: "registry.example/agent:1", restartPolicy: Always}]}}
`)
	for _, want := range []string{
		`The ClusterSidecarTemplate "agent" is invalid:`,
		`spec.labelDomains[0]: must be a domain such as example.com, without a slash`,
		`spec.pod.spec.initContainers[0].imgae: unknown key; did you mean "image"?`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	// The causes, as a program sees them.
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.TrimPrefix(strings.Replace(annotates("agent", "1"), "metadata: {annotations", "metadata: {anotations", 1), "---\n")), &object.Object); err != nil {
		t.Fatal(err)
	}
	_, err = a.objects.Resource(templateKinds[0]).Create(testContext(t), object, metav1.CreateOptions{})
	status := (&apierrors.StatusError{})
	if !errors.As(err, &status) || len(status.ErrStatus.Details.Causes) != 1 || status.ErrStatus.Details.Causes[0].Field != "spec.pod.metadata.anotations" || status.ErrStatus.Reason != metav1.StatusReasonInvalid {
		t.Errorf("the error is %+v", err)
	}
	// The schema finds some alone.
	for text, want := range map[string]string{
		strings.Replace(annotates("agent", "1"), "default: true", "default: 1", 1):                                                           "spec.default",
		strings.Replace(annotates("agent", "1"), "default: true", "validate: {mode: Forbid}", 1):                                             `supported values: "Deny", "Warn"`,
		strings.Replace(annotates("agent", "1"), "default: true", "params: [{name: a}, {name: a}]", 1):                                       "spec.params[1]: Duplicate value",
		strings.Replace(annotates("team-a/agent", "1"), "default: true", "match: {namespaceSelector: {}}", 1):                                "a SidecarTemplate is only for the pods of its own namespace",
		strings.Replace(annotates("a.b", "1"), "authors.example.com/a.b", "authors.example.com/ab", 1):                                       "the name must be a DNS label",
		"apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: nothing}\nspec: {description: It adds nothing.}\n": "adds nothing: give it pod, forEachContainer or both",
	} {
		if _, err := a.try(testContext(t), t, "apply -f -", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	out := a.apply(t, `
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: agent, namespace: team-a}
spec:
  params: [{name: host}]
  pod: {spec: {containers: [{name: agent, image: "registry.example/agent:1", args: ["${params.host}"]}]}}
`)
	for _, want := range []string{
		"Warning: Pod Security: baseline, not restricted: ",
		"Warning: a Guaranteed pod becomes Burstable, because the container agent has no cpu limit",
		"Warning: the pod or its namespace must set host, because there is no default; otherwise the pod does not get the template",
		"sidecartemplate.pillion.dev/agent created",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}
	if _, err := a.try(testContext(t), t, "delete sct -n team-a agent", ""); err != nil {
		t.Error(err)
	}
}

var templateKinds = [...]schema.GroupVersionResource{
	{Group: "pillion.dev", Version: "v1alpha1", Resource: "clustersidecartemplates"},
	{Group: "pillion.dev", Version: "v1alpha1", Resource: "sidecartemplates"},
}

// webhookDown applies a template with a mistake while no replica can check it.
func (a *authors) webhookDown(t *testing.T) {
	a.apply(t, annotates("good", "1"), annotates("other", "1"))
	a.want(t, "shop", "good=1", "other=1")
	port := func(port int) {
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/webhooks/3/clientConfig/service/port","value":%d}]`, port)
		if _, err := a.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(testContext(t), pillionConfiguration, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	port(444)
	eventually(t, "the template is not checked", func(ctx context.Context) error {
		_, err := a.try(ctx, t, "apply -f -", broken("good")+broken("new"))
		return err
	})
	const good = "clustersidecartemplate/good is rejected since "
	for _, r := range a.replicas {
		a.said(t, r, true, good)
		a.said(t, r, true, "(its last valid content is used): clustersidecartemplate/good: spec.pod.metadata.anotations: unknown key; did you mean \"annotations\"?")
		a.said(t, r, true, "clustersidecartemplate/new is rejected since ")
	}
	a.want(t, "shop", "good=1", "other=1")
	// A replica that starts now has no valid content of it, and is ready.
	last := len(a.replicas) - 1
	next, err := a.replicas[last].Replace(testContext(t), 100)
	if err != nil {
		t.Fatal(err)
	}
	a.replicas[last] = next
	a.said(t, next, true, "(it is not used): clustersidecartemplate/good: ")
	port(443)
	eventually(t, "the webhook is up again", func(ctx context.Context) error {
		if _, err := a.try(ctx, t, "apply -f -", broken("third")); err == nil {
			return errors.New("a template with a mistake is accepted")
		}
		return nil
	})
	a.apply(t, annotates("good", "2"))
	if _, err := a.try(testContext(t), t, "delete cst new other", ""); err != nil {
		t.Error(err)
	}
	a.want(t, "shop", "good=2")
	for _, r := range a.replicas {
		a.said(t, r, false, " is rejected since ")
	}
}

// upgrade changes the definitions while replicas follow their objects.
func (a *authors) upgrade(t *testing.T) {
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range templateKinds {
		text, err := os.ReadFile(filepath.Join(root, "manifests", "crds", resource.Resource+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var crd map[string]any
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
		spec := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["spec"].(map[string]any)
		spec["properties"].(map[string]any)["future"] = map[string]any{"type": "string"} // of the next version
		next, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.RunKubectl(t.Context(), next, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	a.want(t, "shop", "good=2")
	a.apply(t, annotates("good", "3"), annotates("team-a/after", "1"))
	a.want(t, "shop", "good=3")
	a.want(t, "team-a", "after=1", "good=3")
	if _, err := a.try(testContext(t), t, "delete sct -n team-a --all", ""); err != nil {
		t.Error(err)
	}
}

// managers checks that two field managers can own different parameters of one template.
func (a *authors) managers(t *testing.T) {
	apply := func(manager, params string) error {
		_, err := a.RunKubectl(t.Context(), []byte("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: managed}\nspec:\n  params: ["+params+"]\n"+
			"  pod: {metadata: {annotations: {example.com/managed: \"yes\"}}}\n"), "apply", "--server-side", "--field-manager="+manager, "-f", "-")
		return err
	}
	params := func() (all []string) {
		o, err := a.objects.Resource(templateKinds[0]).Get(testContext(t), "managed", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := unstructured.NestedSlice(o.Object, "spec", "params")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			all = append(all, fmt.Sprint(p.(map[string]any)["name"], "=", p.(map[string]any)["default"]))
		}
		return all
	}
	if err := errors.Join(apply("platform", "{name: level, default: info}, {name: port, type: integer, default: 8080}"), apply("team", "{name: extra, default: x}")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(params()); got != "[level=info port=8080 extra=x]" {
		t.Errorf("the parameters are %s", got)
	}
	if err := apply("team", "{name: level, default: debug}"); err == nil || !strings.Contains(err.Error(), `conflict with "platform": .spec.params[name="level"].default`) {
		t.Errorf("a second manager may change a parameter: %v", err)
	}
	if err := apply("platform", "{name: level, default: warn}"); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(params()); got != "[level=warn extra=x]" {
		t.Errorf("the parameters are %s", got)
	}
	if _, err := a.try(testContext(t), t, "delete cst managed good", ""); err != nil {
		t.Error(err)
	}
}
