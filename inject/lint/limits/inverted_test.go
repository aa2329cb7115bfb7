// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// TestInverted checks that lint tries templates on a pod with init containers of its own, and finds
// init containers of a template that are in another order than in the template.
func TestInverted(t *testing.T) {
	t.Parallel()
	containers := func(names ...string) (all []corev1.Container) {
		for _, name := range names {
			all = append(all, corev1.Container{Name: name})
		}
		return all
	}
	found, problems := templates.Parse("t", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t}, spec: {pod: {spec: {
		initContainers: [{name: init, image: i}, {"${forEach}": {m: "['a', 'b']"}, name: "agent-${m}", image: i, restartPolicy: Always}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		pod  []string
		want string
	}{
		{[]string{"init", "agent-a", "agent-b", "setup"}, ""},
		{[]string{"setup", "init", "agent-b", "agent-a"}, ""},
		{[]string{"agent-a", "setup", "init"}, "init agent-a"}, // the result of an injector without order
	} {
		if first, second := invertedContainers(found[0], containers(c.pod...)); first+second != "" && first+" "+second != c.want || (first == "") != (c.want == "") {
			t.Errorf("%v: %s %s, want %q", c.pod, first, second, c.want)
		}
	}
	for _, sample := range samplePods() {
		own := decodePod(sample.Pod).Spec.InitContainers
		r := injectInto(sample.Situation, found...)
		if first, _ := invertedContainers(found[0], r.pod.Spec.InitContainers); len(own) == 0 || len(r.pod.Spec.InitContainers) != len(own)+3 && r.Adds() || first != "" {
			t.Errorf("%s gives %v", sample.Pod, r.pod.Spec.InitContainers)
		}
	}
}
