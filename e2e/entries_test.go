// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// variant is an installation without an answer, and the failurePolicy of its entries.
type variant struct {
	name, target     string
	components       []string
	mutate, validate string
}

// exemptLabel is the one of the component exempt-pods.
const exemptLabel = "pillion.dev/exempt"

func variants() []variant {
	return []variant{
		{"base", "base", nil, "Ignore", "Fail"},
		{"fail-open", "base", []string{"fail-open"}, "Ignore", "Ignore"},
		{"fail-closed", "base", []string{"fail-closed"}, "Fail", "Fail"},
		{"cert-manager", "overlays/cert-manager", []string{"fail-closed"}, "Fail", "Fail"},
		{"exempt-pods", "overlays/self-signed", []string{"fail-closed", "exempt-pods"}, "Fail", "Fail"},
	}
}

// policyOf returns the failurePolicy that an entry must have.
func (v variant) policyOf(entry string) string {
	switch strings.Split(entry, ".")[1] {
	case "mutate":
		return v.mutate
	case "validate":
		return v.validate
	default: // shadow and advise only warn, and lint lets mistakes through
		return "Ignore"
	}
}

// unanswered is a cluster in which no server answers webhooks, with counters of the consequences.
type unanswered struct {
	*cluster.Cluster
	dynamic dynamic.Interface
}

// TestFailurePolicyOfEachEntry checks what happens to an object while Pillion does not answer, for every entry of every
// webhook configuration, with the components that decide it.
func TestFailurePolicyOfEachEntry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	u := unanswered{c, client}
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(root, "manifests", "crds")
	for _, args := range []string{"apply --server-side -k " + crds, "wait --for=condition=Established crd --all"} {
		if _, err := c.RunKubectl(testContext(t), nil, strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	for name, inject := range map[string]string{"on": "enabled", "off": "", "shadowed": "shadow", "pillion-system": "enabled", "cert-manager": "enabled"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if inject != "" {
			ns.Labels = map[string]string{injectLabel: inject}
		}
		if _, err := c.Client.CoreV1().Namespaces().Create(testContext(t), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitForPods(testContext(t), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			entries := 0
			for _, configuration := range u.render(t, v) {
				entries += u.try(t, v, configuration)
			}
			if entries != len(pillionRules()) {
				t.Errorf("%d entries", entries)
			}
		})
	}
}

// render returns the webhook configurations. Their entries get names of this variant.
func (u unanswered) render(t *testing.T, v variant) (all []*unstructured.Unstructured) {
	t.Helper()
	rendered, err := u.RunKubectl(testContext(t), nil, "kustomize", kustomization(t, v.target, v.components...))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range documents(t, &cluster.Manifests{Rest: rendered}) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			continue
		}
		for _, w := range listOf(o.Object, "webhooks") {
			w["name"] = w["name"].(string) + "." + v.name
		}
		all = append(all, o)
	}
	return all
}

// try installs one of the configurations, for another one would decide first, and returns how many entries it has.
func (u unanswered) try(t *testing.T, v variant, configuration *unstructured.Unstructured) int {
	t.Helper()
	text, err := yaml.Marshal(configuration.Object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.RunKubectl(testContext(t), text, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	webhooks := listOf(configuration.Object, "webhooks")
	for _, w := range webhooks {
		entry := w["name"].(string)
		if got, want := w["failurePolicy"], v.policyOf(entry); got != want {
			t.Errorf("%s: failurePolicy is %s, want %s", entry, got, want)
		}
		eventually(t, entry+" decides", func(ctx context.Context) error { return u.decides(ctx, entry, v.policyOf(entry)) })
		if err := u.passes(testContext(t), v, entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	if _, err := u.RunKubectl(testContext(t), text, "delete", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	return len(webhooks)
}

// decides creates an object that only this entry is for.
func (u unanswered) decides(ctx context.Context, entry, policy string) error {
	before, err := u.failedOpen(ctx, entry)
	if err != nil {
		return err
	}
	denied := u.create(ctx, entry, namespaceFor(entry), nil)
	after, err := u.failedOpen(ctx, entry)
	if err != nil {
		return err
	}
	failed := denied != nil && strings.Contains(denied.Error(), fmt.Sprintf("failed calling webhook %q", entry))
	if failed != (policy == "Fail") || after > before != (policy == "Ignore") || denied != nil && !failed {
		return fmt.Errorf("failurePolicy %s: the error is %w, passed %v times before and %v after", policy, denied, before, after)
	}
	return nil
}

// passes creates objects that no entry is for, however much they ask for it.
func (u unanswered) passes(ctx context.Context, v variant, entry string) error {
	before, err := u.failedOpen(ctx, entry)
	if err != nil {
		return err
	}
	var errs []error
	if !strings.Contains(entry, ".advise.") && !strings.HasPrefix(entry, "lint.") {
		in := []string{"kube-system", "pillion-system"}
		if v.target == "overlays/cert-manager" {
			in = append(in, "cert-manager")
		}
		for _, namespace := range in {
			errs = append(errs, u.create(ctx, "pod."+entry, namespace, nil))
		}
	}
	if slices.Contains(v.components, "exempt-pods") && !strings.HasPrefix(entry, "lint.") && !strings.HasPrefix(entry, "mistake.") {
		errs = append(errs, u.create(ctx, entry, namespaceFor(entry), map[string]string{exemptLabel: "true"}))
	}
	after, err := u.failedOpen(ctx, entry)
	if after != before {
		errs = append(errs, errors.New("an unexpected request was made"))
	}
	return errors.Join(append(errs, err)...)
}

func namespaceFor(entry string) string {
	switch {
	case strings.HasPrefix(entry, "pod."):
		return "off"
	case strings.HasPrefix(entry, "namespace.shadow."):
		return "shadowed"
	default:
		return "on"
	}
}

// create creates an object for such an entry: a pod, which opts in by itself if the entry is for these, a Deployment, or a namespace.
func (u unanswered) create(ctx context.Context, entry, namespace string, labels map[string]string) error {
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := newPod("web", func(p *corev1.Pod) {
		if strings.HasPrefix(entry, "pod.") {
			p.Labels[injectLabel] = "enabled"
		}
		maps.Copy(p.Labels, labels)
	})
	var err error
	switch {
	case strings.HasPrefix(entry, "lint."):
		template := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(annotates("web", "1"), "---\n")), &template.Object); err != nil {
			return err
		}
		_, err = u.dynamic.Resource(templateKinds[0]).Create(ctx, template, options)
	case strings.HasPrefix(entry, "mistake."):
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "misspelled", Labels: map[string]string{"pillion.dev/injct": "enabled"}}}
		_, err = u.Client.CoreV1().Namespaces().Create(ctx, ns, options)
	case strings.Contains(entry, ".advise."):
		d := newDeployment("web", nil)
		d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = map[string]string{"app": "web"}, pod.Labels
		_, err = u.Client.AppsV1().Deployments(namespace).Create(ctx, d, options)
	default:
		_, err = u.Client.CoreV1().Pods(namespace).Create(ctx, pod, options)
	}
	return err
}

// failedOpen is how often the API server went on because the entry did not answer.
func (u unanswered) failedOpen(ctx context.Context, entry string) (float64, error) {
	metrics, err := u.Metrics(ctx)
	return metrics.Counter(failOpenMetric, map[string]string{"name": entry}), err
}
