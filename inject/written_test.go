// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestWrittenAnnotations checks that an annotation which Pillion itself writes into a pod is no mistake of the user, and that
// another one of Pillion's domain is, as is a label with that key.
func TestWrittenAnnotations(t *testing.T) {
	t.Parallel()
	set, err := templates.Load(templates.Source{Name: "agent.yaml", Data: []byte(`apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec: {default: true, pod: {spec: {initContainers: [{name: agent, image: "agent:1", restartPolicy: Always}]}}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	for key, written := range map[string]bool{inject.AnnotationUnproved: true, inject.AnnotationUninject: true, "pillion.dev/unproven": false} {
		for what, mistakes := range map[string]int{"annotations": map[bool]int{true: 0, false: 1}[written], "labels": 1} {
			pod := fmt.Appendf(nil, `{"metadata":{"name":"web",%q:{%q:"agent"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`, what, key)
			r, err := inject.New(set).Inject(inject.Request{Operation: "CREATE", Object: pod, OptedIn: true, Detail: true, Namespace: request.Namespace{Name: "shop", Known: true}})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, f := range r.Check() {
				if f.Code == inject.CodeUnknownParameter {
					n++
				}
			}
			if n != mistakes {
				t.Errorf("%s in the %s: %d mistakes, want %d", key, what, n, mistakes)
			}
		}
	}
}
