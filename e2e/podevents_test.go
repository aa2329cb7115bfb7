// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	eventNamespace = "mistaken"
	secretValue    = "hunter2-is-the-password"
)

// TestPodEvents checks that kubectl describe prints why the pods of a workload lack a sidecar, without Pillion's own program,
// and that the number of Events is bounded.
func TestPodEvents(t *testing.T) {
	t.Parallel()
	i := install(t, newCluster(t), "self-signed")
	i.waitForInjection(t)
	c := &controlled{i.Cluster}
	c.kubectl(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+eventNamespace+", labels: {pillion.dev/inject: enabled}}\n", "apply", "-f", "-")
	if err := i.WaitForPods(testContext(t), eventNamespace); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	c.kubectl(t, `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: shipper}
spec:
  params: [{name: level, type: string, default: info, enum: [info, debug]}]
  pod:
    spec:
      containers: [{name: shipper, image: "shipper:1", env: [{name: LEVEL, value: "${params.level}"}]}]
`, "apply", "-f", "-")
	c.wantReady(t, "clustersidecartemplate/shipper", "True Valid")
	deployment := func(name, annotations, container string) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}, annotations: {%s}}, spec: {containers: [%s]}}}\n---\n", name, annotations, container)
	}
	const app = "{name: app, image: 'app:1', env: [{name: PASSWORD, value: " + secretValue + "}]}"
	c.kubectl(t, deployment("invalid", "pillion.dev/templates: shipper, shipper.pillion.dev/level: loud", app)+
		deployment("leaking", "pillion.dev/templates: shipper, shipper.pillion.dev/level: "+secretValue, app)+
		deployment("misspelled", "pillion.dev/templates: shipper, shipper.pillion.dev/levels: debug", app)+
		deployment("unknown", "pillion.dev/templates: shiper", app)+
		deployment("conflict", "pillion.dev/templates: shipper", "{name: shipper, image: mine, env: [{name: LEVEL, value: "+secretValue+"}]}")+
		deployment("fine", "pillion.dev/templates: shipper", app), "apply", "-n", eventNamespace, "-f", "-")
	for name, want := range map[string]string{
		"invalid":    `InvalidParameter .*The pods do not get the sidecar shipper: the pod's annotation shipper.pillion.dev/level is "loud"; it must be one of info, debug. Details: pillion explain deployment/invalid -n mistaken`,
		"leaking":    `InvalidParameter .*The pods do not get the sidecar shipper: a value of the pod is the reason. Details: pillion explain deployment/leaking -n mistaken`,
		"misspelled": `UnknownParameter .*shipper: the annotation shipper.pillion.dev/levels sets no parameter; did you mean "level"\? Details: pillion explain deployment/misspelled -n mistaken`,
		"unknown":    `UnknownTemplate .*the annotation pillion.dev/templates names the unknown template "shiper".* Details: pillion explain deployment/unknown -n mistaken`,
		"conflict":   `Conflict .*The pods do not get the sidecar shipper: .* Details: pillion explain deployment/conflict -n mistaken`,
	} {
		c.wantDescribed(t, "deployment/"+name, want)
	}
	if out := c.kubectl(t, "", "describe", "deployment/fine", "-n", eventNamespace); strings.Contains(out, "pillion-controller") {
		t.Errorf("a Deployment without a mistake has an Event:\n%s", out)
	}
	for _, e := range c.podEvents(t) {
		if strings.Contains(e.Note, secretValue) || strings.Contains(e.Note, secretValue[:8]) {
			t.Errorf("an Event has a value of the pod: %s", e.Note)
		}
	}
	t.Run("not injected", c.createdWhileDown)
	t.Run("many", c.manyMistakes)
}

// wantDescribed waits until kubectl describe prints an Event of the controller.
func (c *controlled) wantDescribed(t *testing.T, object, pattern string) {
	t.Helper()
	eventually(t, object+" has an Event", func(ctx context.Context) error {
		out, err := c.RunKubectl(ctx, nil, "describe", object, "-n", eventNamespace)
		if err != nil {
			return err
		}
		_, events, _ := strings.Cut(string(out), "\nEvents:")
		if !regexp.MustCompile(`Warning +`+pattern).MatchString(events) || !strings.Contains(events, "pillion-controller") {
			return fmt.Errorf("kubectl prints:%s", events)
		}
		return nil
	})
}

// podEvents lists the Events about pods.
func (c *controlled) podEvents(t *testing.T) []eventsv1.Event {
	t.Helper()
	list, err := c.Client.EventsV1().Events(eventNamespace).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.ReportingController != "pillion-controller" })
}

// createdWhileDown creates a pod that the API server does not call Pillion for.
func (c *controlled) createdWhileDown(t *testing.T) {
	c.kubectl(t, "", "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-l", "app.kubernetes.io/name=pillion")
	number := 0
	eventually(t, "a pod has no sidecar, and an Event says so", func(ctx context.Context) error {
		number++
		p := newPod(fmt.Sprint("bare-", number), func(p *corev1.Pod) { p.Annotations = map[string]string{"pillion.dev/templates": "shipper"} })
		pod, err := c.Client.CoreV1().Pods(eventNamespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, e := range c.podEvents(t) { //nolint:contextcheck // it has the test's context
			if e.Reason == "NotInjected" && e.Regarding.Kind == "Pod" && strings.Contains(e.Note, "The pod does not get the sidecar shipper: Pillion was not called") {
				return nil
			}
		}
		return fmt.Errorf("the pod has %d containers, and there is no Event", len(pod.Spec.Containers))
	})
}

// manyMistakes creates many pods with a mistake, each without a controller.
func (c *controlled) manyMistakes(t *testing.T) {
	const many = 1000
	before := len(c.podEvents(t))
	for n := range many {
		p := newPod(fmt.Sprint("many-", n), func(p *corev1.Pod) {
			p.Annotations = map[string]string{"pillion.dev/templates": "shipper", "shipper.pillion.dev/level": "loud"}
		})
		if _, err := c.Client.CoreV1().Pods(eventNamespace).Create(testContext(t), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "there are some Events", func(context.Context) error {
		if len(c.podEvents(t)) <= before { //nolint:contextcheck // it has the test's context
			return errors.New("not yet")
		}
		return nil
	})
	const burst, minutes = 20, 5 // see the controller
	if n := len(c.podEvents(t)); n > burst+minutes {
		t.Errorf("%d pods with a mistake led to %d Events in the namespace", many, n)
	}
	t.Logf("%d Events for %d pods", len(c.podEvents(t)), many)
}
