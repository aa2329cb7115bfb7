// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestConflictsOfManyTemplates checks that the work grows no faster than the number of templates, if a pod forges all records
// and conflicts with each.
func TestConflictsOfManyTemplates(t *testing.T) {
	allocations := func(n int) float64 {
		var set []*templates.Template
		var records []string
		for i := range n {
			doc := fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {default: true,
  pod: {spec: {volumes: [{name: v%d, emptyDir: {}}]}},
  forEachContainer: [{add: {env: [{name: E%d, value: "${container.name}"}], volumeMounts: [{name: v%d, mountPath: /v}]}}]}}`, i, i, i, i)
			found, problems := templates.Parse("t", []byte(doc))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			set, records = append(set, found...), append(records, fmt.Sprintf(`"t%d.pillion.dev/injected":"x"`, i))
		}
		containers := strings.Repeat(`,{"name":"c","volumeMounts":[{"name":"own","mountPath":"/v"}]}`, 20)[1:]
		pod := []byte(`{"metadata":{"annotations":{` + strings.Join(records, ",") + `}},"spec":{"containers":[` + containers + `],"volumes":[{"name":"own","emptyDir":{}}]}}`)
		injector := inject.New(templates.NewSet(set))
		return testing.AllocsPerRun(1, func() {
			if _, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: pod}); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocations(12), allocations(48)
	t.Logf("12 templates: %v allocations, 48: %v", few, many)
	if many > 6*few {
		t.Errorf("4 times as many templates take %.1f times the allocations", many/few)
	}
}
