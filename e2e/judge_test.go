// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

const (
	allowed = "allowed"
	warned  = "warned"
	denied  = "denied"
	// tamperAnnotation names what the other webhook does to a pod, and targetAnnotation the template
	// whose container it changes.
	tamperAnnotation = "e2e.example.com/tamper"
	targetAnnotation = "e2e.example.com/target"

	// finalVerdict is where the audit log says what became of a pod.
	finalVerdict    = "final_verdict"
	unknownTemplate = "unknown_template"
	findingsMetric  = "pillion_findings_total"
)

// moment is when the other webhook does its damage.
type moment struct {
	name string
	// order and policy have the API server call it then.
	order  string
	policy admissionregistrationv1.ReinvocationPolicyType
	// last: Pillion is not called any more after it.
	last bool
}

func moments() []moment {
	return []moment{
		{"before Pillion's second call, in that round", "a", ifNeeded, false},
		{"before Pillion's second call, in the first round", "z", never, false},
		{"after Pillion's second call", "z", ifNeeded, true},
	}
}

// TestTamper checks that every change that another webhook makes to Pillion's additions, at any time, is
// detected. Pillion either repairs it, or names the change and denies the pod or warns, depending on the
// template's mode.
func TestTamper(t *testing.T) {
	t.Parallel()
	cases := tamperings()
	for _, m := range moments() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			installWebhook(t, ns, m.order, testwebhook.Webhook{Reinvocation: m.policy, Mutate: testwebhook.Edit(tamper(cases))})
			for _, c := range cases {
				for template, mode := range map[string]string{"guard": denied, "watch": warned} {
					t.Run(c.name+", "+mode, func(t *testing.T) {
						t.Parallel()
						c.check(t, ns, template, mode, m)
					})
				}
			}
		})
	}
}

// tamper does to a pod what its annotation names, once Pillion has been there.
func tamper(cases []tampering) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		target := p.Annotations[targetAnnotation]
		if findContainer(p, target) == nil {
			return
		}
		for _, c := range cases {
			if slug(c.name) == p.Annotations[tamperAnnotation] {
				c.edit(p, target)
			}
		}
	}
}

func slug(name string) string { return strings.TrimSuffix(namespacePrefix(name), "-") }

// check sends a pod that is tampered with at that moment. The template is in that mode.
func (c *tampering) check(t *testing.T, ns, template, mode string, m moment) {
	t.Helper()
	pod := newPod(slug(c.name+" "+template), requests(template), func(p *corev1.Pod) {
		p.Annotations[tamperAnnotation], p.Annotations[targetAnnotation] = slug(c.name), template
	})
	finding := strings.ReplaceAll(c.finding, "TEMPLATE", template)
	switch {
	case c.repaired && !m.last:
		mode, finding = allowed, ""
	case c.verdict != "":
		mode = c.verdict
	}
	created := wantVerdict(t, ns, pod, says(mode, template, finding))
	again := againInVain
	if c.repaired {
		again = againMutated
	}
	wantCalls(t, creation(t, ns, pod.Name), calledOnce, again)
	if mode == allowed {
		wantNothingToAdd(t, created)
	}
}

// judgement is what Pillion should say about a pod: in one word, and about one template, "<code> at <start
// of a path>".
type judgement struct {
	verdict, template, finding string
	nothingElse                bool
}

func says(verdict, template, finding string) judgement {
	return judgement{verdict: verdict, template: template, finding: finding}
}

// alone requires that this is the only warning, although both webhooks find it.
func (j judgement) alone() judgement {
	j.nothingElse = true
	return j
}

// wantVerdict creates a pod and checks the message for its author and the audit log, which must contain
// nothing else. It returns nil if the pod was denied.
func wantVerdict(t *testing.T, ns string, pod *corev1.Pod, want judgement) *corev1.Pod {
	t.Helper()
	return wantVerdictAt(t, env.APIServer(), ns, pod, want)
}

// wantVerdictAt is wantVerdict at one of several API servers.
func wantVerdictAt(t *testing.T, server *cluster.APIServer, ns string, pod *corev1.Pod, want judgement) *corev1.Pod {
	t.Helper()
	ctx, warnings := testContext(t), &collectedWarnings{}
	config := rest.CopyConfig(server.Config)
	config.WarningHandler = warnings
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	created, denial := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	event, err := server.Audit.Wait(ctx, func(e cluster.Event) bool { return e.CreatesPod(ns, pod.Name) })
	if err != nil {
		t.Fatal(err)
	}
	switch want.verdict {
	case denied:
		wantForbidden(t, denial, want.sentence())
	case warned:
		wantWarning(t, warnings, want.sentence())
		if want.nothingElse && len(warnings.text) != 1 {
			t.Errorf("warnings %q, want one for both webhooks", warnings.text)
		}
	default:
		wantWarning(t, warnings, "")
	}
	want.check(t, event)
	if denial != nil && want.verdict != denied {
		t.Fatalf("the pod is denied: %v", denial)
	}
	if denial != nil {
		return nil
	}
	return created
}

// about is what the finding stands under in the audit log.
func (j judgement) about() string {
	if strings.HasPrefix(j.finding, unknownTemplate) {
		return unknownTemplate // about no template
	}
	return j.template
}

// sentence is how the finding begins in messages for users.
func (j judgement) sentence() string {
	if j.about() == unknownTemplate {
		return j.finding
	}
	return j.template + ": " + j.finding
}

func (j judgement) check(t *testing.T, event cluster.Event) {
	t.Helper()
	said := event.Judgement()
	if word, _, _ := strings.Cut(said[finalVerdict], " "); word != j.verdict {
		t.Errorf("the verdict is %q, want %q; audit: %v", said[finalVerdict], j.verdict, said)
	}
	text := said[j.about()]
	if j.finding == "" && text != "" || !strings.Contains("; "+text, "; "+j.finding) {
		t.Errorf("the audit annotation for %s is %q, want one with %q", j.about(), text, j.finding)
	}
}

func wantForbidden(t *testing.T, err error, said string) {
	t.Helper()
	const by = `.validate.pillion.dev" denied the request: `
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), by) || !strings.Contains(err.Error(), said) {
		t.Errorf("the error is %v, want one of kind Forbidden with %q and %q", err, by, said)
	}
}

// TestAuthorsMistakes checks that a mistake in a pod suffices to deny it if it concerns a template with
// mode Deny. A template that does not exist has no mode.
func TestAuthorsMistakes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		edit    func(p *corev1.Pod, template string)
		finding string
		// onlyWarned: whatever the mode.
		onlyWarned bool
	}{
		{
			"parameter misspelled",
			func(p *corev1.Pod, template string) { overrides(template, "levl", "debug")(p) },
			"unknown_parameter: the annotation TEMPLATE.pillion.dev/levl sets", false,
		}, {
			"value not allowed",
			func(p *corev1.Pod, template string) { overrides(template, "level", "loud")(p) },
			"invalid_parameter: the pod's annotation TEMPLATE.pillion.dev/level is", false,
		}, {
			"unknown template",
			func(p *corev1.Pod, template string) { requests(template + ",guart")(p) },
			"unknown_template: the annotation pillion.dev/templates names", true,
		}, {
			"own container of that name",
			func(p *corev1.Pod, template string) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: template, Image: "registry.example/mine:1"})
			},
			"conflict at /spec/containers/2", false,
		}, {
			"own volume of that name",
			func(p *corev1.Pod, template string) {
				p.Spec.Volumes = []corev1.Volume{hostPathVolume(template + "-data")}
			},
			"conflict at /spec/volumes/0", false,
		},
	}
	ns := optedInNamespace(t)
	for _, c := range cases {
		for template, mode := range map[string]string{"guard": denied, "watch": warned} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				if c.onlyWarned {
					mode = warned
				}
				pod := newPod(slug(c.name+" "+template), requests(template), func(p *corev1.Pod) { c.edit(p, template) })
				wantVerdict(t, ns, pod, says(mode, template, strings.ReplaceAll(c.finding, "TEMPLATE", template)).alone())
			})
		}
	}
}

// TestRequired checks that no pod starts without a required template, in any mode: neither a pod that opts
// out, nor one from which a later webhook removes every trace of the template.
func TestRequired(t *testing.T) {
	t.Parallel()
	optedOut := func(p *corev1.Pod, template string) {
		p.Labels[injectLabel] = "disabled"
		requests("-" + template)(p)
	}
	for _, template := range []string{"must-deny", "must-warn"} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t, withLabel("e2e.example.com/must", strings.TrimPrefix(template, "must-")))
			installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				if p.Annotations[tamperAnnotation] != "" {
					withoutContainer(p, template)
					delete(p.Annotations, template+".pillion.dev/injected")
				}
			})})
			out := newPod("opted-out", func(p *corev1.Pod) { optedOut(p, template) })
			pod := wantVerdict(t, ns, out, says(allowed, template, ""))
			if findContainer(pod, template) == nil {
				t.Errorf("the pod could opt out: %v", containerNames(pod.Spec.InitContainers))
			}
			stripped := newPod("stripped", func(p *corev1.Pod) {
				optedOut(p, template)
				p.Annotations[tamperAnnotation] = "yes"
			})
			wantVerdict(t, ns, stripped, says(denied, template, "not_injected at /spec/initContainers/-"))
		})
	}
}

// TestOwnContainer checks that a pod that brings a container with the name of a required template's
// cannot make it run another program, with or without the annotation of an injected pod. The template names the lists to
// which others may add otherwise.
func TestOwnContainer(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t, withLabel("e2e.example.com/must", "deny"))
	revision := createPod(t, ns, newPod("injected")).Annotations["must-deny.pillion.dev/injected"]
	for name, edit := range map[string]func(*corev1.Container){
		"command":  func(c *corev1.Container) { c.Command = []string{"sleep", "infinity"} },
		"args":     func(c *corev1.Container) { c.Args = []string{"--nothing"} },
		"image":    swapImage,
		"variable": func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/tmp/evil.so"}} },
		"mount":    func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/bin"}} },
	} {
		for _, record := range []string{"", revision, "0123456789ab"} {
			own := corev1.Container{Name: "must-deny", Image: "registry.example/must:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
			edit(&own)
			pod := newPod(slug(name+" "+record), func(p *corev1.Pod) {
				p.Spec.InitContainers = append(p.Spec.InitContainers, own)
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
				if record != "" {
					p.Annotations["must-deny.pillion.dev/injected"] = record
				}
			})
			_, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{})
			wantForbidden(t, err, "must-deny: ")
		}
	}
}

// TestLateOptIn checks that a pod that a later webhook opts in is denied in every mode, because
// Pillion's mutating webhook was not called for it.
func TestLateOptIn(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
		if strings.HasPrefix(p.Name, "late-") {
			p.Labels[injectLabel] = "enabled"
		}
	})})
	for _, template := range []string{"guard", "watch"} {
		wantVerdict(t, ns, newPod("late-"+template, requests(template)), says(denied, template, "not_injected at /spec/initContainers/-"))
	}
}

// TestSameTemplates checks that guard and watch differ only in their mode.
func TestSameTemplates(t *testing.T) {
	t.Parallel()
	body := func(name string) string {
		text, err := os.ReadFile("testdata/templates/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(string(text), "\napiVersion")
		return body
	}
	same := strings.NewReplacer("guard", "watch", "mode: Deny", "mode: Warn", "order: 110", "order: 120").Replace(body("guard"))
	if same != body("watch") {
		t.Errorf("guard.yaml and watch.yaml differ in more than their names, orders and modes")
	}
}

// findingsCounted is what Pillion's metrics say about a template.
func findingsCounted(t *testing.T, template, code string) float64 {
	t.Helper()
	metrics, err := env.pillion.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return metrics.Counter(findingsMetric, map[string]string{"webhook": "validate", "template": template, "code": code})
}

// TestFindingsCounted checks that each finding is counted once, and that correct pods are not
// counted.
func TestFindingsCounted(t *testing.T) {
	ns := optedInNamespace(t)
	before := findingsCounted(t, "watch", "unknown_parameter")
	wantVerdict(t, ns, newPod("right", requests("watch")), says(allowed, "watch", ""))
	wantVerdict(t, ns, newPod("wrong", requests("watch"), overrides("watch", "colour", "red")), says(warned, "watch", "unknown_parameter: the annotation watch.pillion.dev/colour"))
	if after := findingsCounted(t, "watch", "unknown_parameter"); after != before+1 {
		t.Errorf("%s was %v and is %v after one finding", findingsMetric, before, after)
	}
}
