// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/testing/size"
)

// addition is what another webhook adds to each container that lacks it.
type addition struct {
	field string
	key   string // of the list's items, or "" if the field is no list
	value any
}

func additions() []addition {
	return []addition{
		{"env", "name", map[string]any{"name": "REGION", "value": "eu"}},
		{"env", "name", map[string]any{"name": "NODE", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}},
		{"volumeMounts", "mountPath", map[string]any{"name": "secrets", "mountPath": "/vault/secrets"}},
		{"volumeMounts", "mountPath", map[string]any{"name": "secrets", "mountPath": "/var/run/a~b", "subPath": "x", "readOnly": true}},
		{"volumeDevices", "devicePath", map[string]any{"name": "disk", "devicePath": "/dev/x"}},
		{"envFrom", "prefix", map[string]any{"prefix": "A_", "configMapRef": map[string]any{"name": "all"}}},
		{"securityContext", "", map[string]any{"readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}}}},
		{"resources", "", map[string]any{"limits": map[string]any{"example.com/device": "1"}}},
		{"terminationMessagePolicy", "", "FallbackToLogsOnError"},
	}
}

// addTo adds to a container what it lacks. Lists get the item first, last, or sorted.
func (a addition) addTo(container map[string]any, where int) {
	if a.key == "" {
		if container[a.field] == nil {
			container[a.field] = a.value
		}
		return
	}
	list, _ := container[a.field].([]any)
	key := func(item any) string { return fmt.Sprint(item.(map[string]any)[a.key]) }
	if slices.ContainsFunc(list, func(item any) bool { return key(item) == key(a.value) }) {
		return
	}
	list = append([]any{a.value}, list...)
	switch where {
	case 1:
		list = append(list[1:], list[0])
	case 2:
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	}
	container[a.field] = list
}

func containersOf(pod map[string]any) (all []map[string]any) {
	spec := pod["spec"].(map[string]any)
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for _, item := range items {
			all = append(all, item.(map[string]any))
		}
	}
	return all
}

// TestOthersAdditions checks that a pod changes in place although another webhook has added something to all containers,
// and that what was added stays. Random templates, apps and additions are tried.
func TestOthersAdditions(t *testing.T) {
	t.Parallel()
	for seed := range size.Choose(t, 150, 5000) {
		r := rand.New(rand.NewPCG(uint64(seed), 17))
		own := []string{
			`env: [{name: MODE, value: fast}, {name: LEVEL, value: info}]`, `env: [{name: Z, value: z}]`, `volumeMounts: [{name: logs, mountPath: /logs}]`,
			`securityContext: {runAsNonRoot: true}`, `resources: {limits: {memory: 32Mi}}`, `args: [--all]`, `ports: [{containerPort: 9000}]`,
		}
		r.Shuffle(len(own), func(a, b int) { own[a], own[b] = own[b], own[a] })
		var fields []string
		for _, field := range own[:r.IntN(4)] {
			if name, _, _ := strings.Cut(field, ":"); !slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(f, name+":") }) {
				fields = append(fields, field)
			}
		}
		list := []string{"containers: [{", `initContainers: [{restartPolicy: Always, `}[r.IntN(2)]
		template := func(version int) []byte {
			return fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {default: true, validate: {protect: %s}, pod: {spec: {volumes: [{name: logs, emptyDir: {}}], %sname: agent, image: 'agent:%d'%s}]}}}}",
				[]string{"[]", "[image]"}[seed%2], list, version, strings.Join(append([]string{""}, fields...), ", "))
		}
		c := newCase(t, &txtar.Archive{Files: []txtar.File{
			{Name: "old.yaml", Data: template(1)},
			{Name: "new.yaml", Data: template(2)},
			{Name: "options", Data: []byte("mutated")},
			{Name: "owner.yaml", Data: []byte(`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-5f7, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}, spec: {
				initContainers: [{name: setup, image: "setup:1"}], containers: [{name: web, image: "web:1", env: [{name: REGION, value: us}], securityContext: {runAsUser: 1000}}]}}}}`)},
		}})
		if seed%3 == 0 {
			c.owner = nil // its creator is unknown
		}
		var pod map[string]any
		must(t, json.Unmarshal(c.running, &pod))
		all := additions()
		r.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		where := r.IntN(3)
		for _, a := range all[:1+r.IntN(4)] {
			for _, container := range containersOf(pod) {
				a.addTo(container, where)
			}
		}
		var err error
		c.running, err = json.Marshal(pod)
		must(t, err)
		p := c.plan(c.running)
		if p.Action != rollout.Patch || slices.ContainsFunc(p.Changes, func(c rollout.Change) bool { return c.How != rollout.InPlace && c.How != rollout.Record }) {
			t.Errorf("seed %d: %s (%s): %+v\n%s\n%s", seed, p.Action, p.Why, p.Changes, template(1), c.running)
			continue
		}
		images, err := p.Images()
		must(t, err)
		var after map[string]any
		must(t, json.Unmarshal(patched(t, c.running, images), &after))
		was, is := containersOf(pod), containersOf(after)
		for i := range was {
			if was[i]["name"] == "agent" {
				was[i] = maps.Clone(was[i])
				was[i]["image"] = "agent:2"
			}
			if fmt.Sprint(was[i]) != fmt.Sprint(is[i]) {
				t.Errorf("seed %d: the container\n%v changes to\n%v", seed, was[i], is[i])
			}
		}
	}
}

// TestDroppedByTemplate checks that a running pod is not taken for current if the new revision drops something that no
// other container of the pod has, although other webhooks change new pods.
func TestDroppedByTemplate(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		drops, others string
		want          rollout.Action
	}{
		"a variable":                         {`env: [{name: DEBUG, value: "1"}]`, `{}`, rollout.Replace},
		"a variable that the app has":        {`env: [{name: DEBUG, value: "1"}]`, `{env: [{name: DEBUG, value: "1"}]}`, rollout.Replace},
		"a mount that another container has": {`volumeMounts: [{name: logs, mountPath: /logs}]`, `{volumeMounts: [{name: other, mountPath: /logs}]}`, rollout.Replace},
		"an argument":                        {`args: [--debug]`, `{}`, rollout.Replace},
		"a limit":                            {`resources: {limits: {cpu: "1"}}`, `{}`, rollout.Replace},
		"a part of an object, and the app has the other": {`securityContext: {runAsUser: 1, runAsGroup: 2}`, `{securityContext: {runAsGroup: 2}}`, rollout.Replace},
	} {
		const template = "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {default: true, pod: {spec: {volumes: [{name: logs, emptyDir: {}}], containers: [{name: agent, image: 'agent:%d', %s}, {name: second, image: 'second:1', %s}]}}}}"
		app := strings.TrimSuffix(strings.TrimPrefix(test.others, "{"), "}")
		c := newCase(t, &txtar.Archive{Files: []txtar.File{
			{Name: "old.yaml", Data: fmt.Appendf(nil, template, 1, test.drops, test.drops)},
			{Name: "new.yaml", Data: fmt.Appendf(nil, template, 2, "", "")},
			{Name: "options", Data: []byte("mutated")},
			{Name: "owner.yaml", Data: fmt.Appendf(nil, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-5f7, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}, spec: {volumes: [{name: other, emptyDir: {}}], containers: [{name: web, image: 'web:1', %s}]}}}}", app)},
		}})
		if p := c.plan(c.running); p.Action != test.want {
			t.Errorf("%s: %s (%s), want %s: %+v", what, p.Action, p.Why, test.want, p.Changes)
		}
	}
}
