// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// judgedByPolicies is how many pods are judged by the policies and by the webhook, in namespaces of each kind.
	judgedByPolicies = 150

	sentryVersion = "sentry.pillion.dev/version"
)

// policyAgrees checks that the policies and the validating webhook with the same templates deny the same final pods,
// and warn about the same others. The pods differ in everything that a policy reads. Only the webhook denies damage to
// anything else.
func policyAgrees(t *testing.T) {
	t.Parallel()
	judge := startJudge(t)
	random, verdicts := rand.New(rand.NewPCG(20261122, 16)), map[string]int{}
	for _, version := range []string{"", "3.0", "latest"} { // of the sentry, by the namespace; the last is not valid
		var options []namespaceOption
		if version != "" {
			options = append(options, withAnnotation(sentryVersion, version))
		}
		pair := judgedPair{policy: checkedNamespace(t, options...), webhook: judge.namespace(t, options...)}
		for i := range judgedByPolicies {
			verdicts[pair.wantAgreed(t, sentryPod(random, fmt.Sprint("pod-", i), version, judge.revisions))]++
		}
	}
	t.Logf("verdicts by both: %v", verdicts)
	if min(verdicts[allowed], verdicts[warned], verdicts[denied]) < judgedByPolicies/10 {
		t.Error("there are too few of one kind")
	}
	pair := judgedPair{policy: checkedNamespace(t), webhook: judge.namespace(t)}
	wantOnlyWarnedByPolicy(t, pair)
	for name, edit := range beyondPolicies() {
		t.Run("only the webhook: "+name, func(t *testing.T) {
			t.Parallel()
			pod := newPod(slug(name), sentry(""), injectedBy("sentry", judge.revisions["sentry"]), edit)
			policy, webhook := pair.judge(t, pod)
			if policy.denial != nil || !apierrors.IsForbidden(webhook.denial) {
				t.Errorf("the policies say %v and the webhook says %v; want a denial by the webhook alone", policy, webhook)
			}
		})
	}
}

// wantOnlyWarnedByPolicy checks that the policy only warns, because it follows the template's mode. The webhook denies a pod that has
// nothing of the template in every mode, because the pod is correct if it is created again.
func wantOnlyWarnedByPolicy(t *testing.T, pair judgedPair) {
	t.Helper()
	pod := newPod("not-greeted", func(p *corev1.Pod) {
		p.Labels["greets"], p.Labels["tier"] = "yes", "batch" // and the sentry is not for it
	})
	if policy, webhook := pair.judge(t, pod); policy.word() != warned || webhook.word() != denied {
		t.Errorf("the policies say %v and the webhook says %v; want a warning and a denial", policy, webhook)
	}
}

// beyondPolicies are kinds of damage that the policies do not check, as the help of pillion policy
// lists them.
func beyondPolicies() map[string]func(*corev1.Pod) {
	return map[string]func(*corev1.Pod){
		"record removed":    func(p *corev1.Pod) { delete(p.Annotations, "sentry.pillion.dev/injected") },
		"unknown parameter": overrides("sentry", "tear", "web"),
	}
}

// sentryPod has a random choice of everything that the policy of the template sentry reads, in a namespace with that
// version. The template greeter, whose mode is Warn, does not match it, or is in it, or is in it with another image.
func sentryPod(random *rand.Rand, name, version string, revisions map[string]string) *corev1.Pod {
	some := func(edits ...func(*corev1.Pod)) func(*corev1.Pod) { return edits[random.IntN(len(edits))] }
	nothing := func(*corev1.Pod) {}
	inSentry := func(edit func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			if c := findContainer(p, "sentry"); c != nil {
				edit(c)
			}
		}
	}
	greeted := func(version string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels["greets"] = "yes"
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "greeter", Image: "registry.example/greeter:" + version})
			injectedBy("greeter", revisions["greeter"])(p)
		}
	}
	return newPod(name, sentry(version), injectedBy("sentry", revisions["sentry"]), some(nothing, greeted("1"), greeted("2")),
		some(nothing, nothing, nothing, nothing, func(p *corev1.Pod) { withoutContainer(p, "sentry") }, func(p *corev1.Pod) {
			withoutContainer(p, "sentry")
			withoutAnnotation(p, "sentry")
		}, func(p *corev1.Pod) {
			p.Spec.Containers, p.Spec.InitContainers = append(p.Spec.Containers, corev1.Container{Name: "sentry", Image: "registry.example/sentry:2.1"}), nil
		}, inSentry(func(c *corev1.Container) { c.Name = "century" })),
		some(nothing, nothing, nothing, nothing, inSentry(swapImage), inSentry(func(c *corev1.Container) { c.Image = "registry.example/sentry:3.0" })),
		some(nothing, nothing, nothing, nothing, inSentry(func(c *corev1.Container) { c.RestartPolicy = nil })),
		some(nothing, nothing, nothing, nothing, overrides("sentry", "version", "2.1"), overrides("sentry", "tier", "none"), overrides("sentry", "tier", "batch"),
			overrides("sentry", "customize", "true"), requests("-sentry"), requests("")),
		some(nothing, nothing, nothing, nothing, func(p *corev1.Pod) { p.Labels["tier"] = "batch" }, func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" },
			func(p *corev1.Pod) { p.Spec.HostNetwork = true }, func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
			func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"} }))
}

// injectedBy writes the record of an injection.
func injectedBy(template, revision string) func(*corev1.Pod) {
	return overrides(template, "injected", revision)
}

// policyJudge is a Pillion with the templates of the policies. Only its validating webhook is installed, so it
// judges pods as clients send them.
type policyJudge struct {
	label     string            // of the namespaces that it is for
	revisions map[string]string // by template
}

func startJudge(t *testing.T) *policyJudge {
	t.Helper()
	p, err := env.StartPillion(testContext(t), env.binary, "testdata/policy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("pillion serve after SIGTERM: %v\n%s", err, p.LogTail())
		}
	})
	j := &policyJudge{label: "judged-by-" + plainNamespace(t), revisions: map[string]string{}}
	policies, err := env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range policies.Items {
		said := policies.Items[i].Annotations
		j.revisions[said["pillion.dev/template"]] = said["pillion.dev/revision"]
	}
	own := env.manifests.ForNamespaces(j.label, map[string]string{validatingLabel: j.label})
	if err := env.InstallValidating(testContext(t), own, p.Endpoint); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(cleanupContext(), own.Validating.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return j
}

// namespace makes a namespace whose pods it judges.
func (j *policyJudge) namespace(t *testing.T, options ...namespaceOption) string {
	t.Helper()
	ns := plainNamespace(t, append([]namespaceOption{withLabel(injectLabel, "by-another-entry"), withLabel(validatingLabel, j.label)}, options...)...)
	eventually(t, "the webhook judges", func(ctx context.Context) error {
		_, err := env.Client.CoreV1().Pods(ns).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("a pod without the sidecar is allowed")
		}
		return nil
	})
	return ns
}

// judgedPair is a pair of namespaces that differ only in what judges their pods.
type judgedPair struct{ policy, webhook string }

// policyVerdict is the response to the author of a pod.
type policyVerdict struct {
	warnings []string
	denial   error
}

// judge has both judge a pod.
func (p *judgedPair) judge(t *testing.T, pod *corev1.Pod) (policy, webhook policyVerdict) {
	t.Helper()
	policy.warnings, policy.denial = tryPod(testContext(t), t, p.policy, pod.DeepCopy())
	webhook.warnings, webhook.denial = tryPod(testContext(t), t, p.webhook, pod.DeepCopy())
	return policy, webhook
}

// wantAgreed returns the verdict, "allowed", "warned" or "denied", that must be that of both.
func (p *judgedPair) wantAgreed(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	policy, webhook := p.judge(t, pod)
	if policy.denial != nil && !strings.Contains(policy.denial.Error(), "ValidatingAdmissionPolicy") ||
		webhook.denial != nil && !strings.Contains(webhook.denial.Error(), "validate.pillion.dev") {
		t.Fatalf("denied by another webhook or policy: %v; %v", policy, webhook)
	}
	if policy.word() != webhook.word() {
		t.Errorf("the policies say\n%v\nand the webhook says\n%v\nof\n%s", policy, webhook, podText(t, pod))
	}
	return policy.word()
}

func (v policyVerdict) word() string {
	switch {
	case v.denial != nil:
		return denied
	case len(v.warnings) > 0:
		return warned
	}
	return allowed
}
