// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// clashing returns three templates that may conflict at every kind of place.
func clashing(t *testing.T, random *rand.Rand) (set *templates.Set, text string) {
	t.Helper()
	some := func(all ...string) string { return all[random.IntN(len(all))] }
	var all []string
	for i := range 3 {
		volume := some("one", "two")
		name := some(fmt.Sprint("c", i), fmt.Sprint("c", i), "same")
		container := fmt.Sprintf(`[{name: %s, image: "i:%d", restartPolicy: Always, ports: [{containerPort: %d, hostPort: %s}]}]`, name, i, 80+i, some("7000", "7001", fmt.Sprint(8000+i)))
		list := "initContainers"
		if random.IntN(2) == 0 {
			list, container = "containers", strings.Replace(container, "restartPolicy: Always, ", "", 1)
		}
		add := some(
			fmt.Sprintf("volumeMounts: [{name: %s, mountPath: %s}]", volume, some("/logs", "/data")),
			fmt.Sprintf("volumeDevices: [{name: %s, devicePath: %s}]", volume, some("/logs", "/data")),
			fmt.Sprintf("ports: [{name: p%d, containerPort: %d, hostPort: %s}]", i, 90+i, some("7000", "7001")),
		)
		source := some("emptyDir: {}", "emptyDir: {medium: Memory}", "persistentVolumeClaim: {claimName: x}")
		if strings.HasPrefix(add, "volumeDevices") {
			source = "persistentVolumeClaim: {claimName: x}"
		}
		all = append(all, fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {default: true, order: %d, pod: {spec: {%s: %s, volumes: [{name: %s, %s}]}}, forEachContainer: [{add: {%s}}]}}",
			i, i, list, container, volume, source, add))
	}
	text = strings.Join(all, "\n---\n")
	found, problems := templates.Parse("t", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return templates.NewSet(found), text
}

// TestConflictNamesOwner checks that the reason of a conflict between two templates names both of
// them, and does not blame the pod. The same holds for the injected pod.
func TestConflictNamesOwner(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20261122, 7))
	seen := map[string]int{}
	for range 1000 {
		set, text := clashing(t, random)
		injector := inject.New(set)
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Known: true, Labels: map[string]string{inject.LabelInject: inject.Enabled}}, Object: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"w:1"}]}}`)}
		first, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		req.Object = first.InjectedJSON()
		second, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range first.Decisions {
			d := &first.Decisions[i]
			if d.Code != inject.CodeConflict {
				continue
			}
			for _, o := range d.Obstacles {
				words := strings.Fields(o.Message)
				if !strings.Contains(o.Message, "the template ") || strings.Contains(o.Message, "the pod has") || strings.Contains(o.Message, "elsewhere") {
					t.Errorf("%s: %s\n%s", d.Template, o.Message, text)
				}
				seen[strings.Join(words[:min(4, len(words))], " ")]++
			}
			if again := &second.Decisions[i]; again.Message != d.Message {
				t.Errorf("%s: first %q, then %q\n%s", d.Template, d.Message, again.Message, text)
			}
		}
		if t.Failed() {
			return
		}
	}
	if len(seen) < 6 {
		t.Errorf("only these conflicts: %v", seen)
	}
}
