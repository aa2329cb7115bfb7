// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
)

// TestLong checks that the work for a plan grows with the length of a pod's lists and objects, and no faster.
func TestLong(t *testing.T) {
	const times, most = 8, 24
	for what, pattern := range map[string]string{
		"annotations":  `{"metadata": {"annotations": {%s}}} "a%d": "x"`,
		"records":      `{"metadata": {"annotations": {%s}}} "a%d.pillion.dev/injected": "x"`,
		"labels":       `{"metadata": {"labels": {%s}}} "a%d": "x"`,
		"nodeSelector": `{"spec": {"nodeSelector": {%s}}} "a%d": "x"`,
		"tolerations":  `{"spec": {"tolerations": [%s]}} {"key": "a%d", "operator": "Exists"}`,
		"volumes":      `{"spec": {"volumes": [%s]}} {"name": "a%d", "emptyDir": {}}`,
		"tokens":       `{"spec": {"volumes": [%s]}} {"name": "kube-api-access-%d", "emptyDir": {}}`,
		"containers":   `{"spec": {"initContainers": [%s]}} {"name": "a%d", "image": "x:1"}`,
		"env":          `{"container": {"env": [%s]}} {"name": "A%d", "value": "x"}`,
		"mounts":       `{"container": {"volumeMounts": [%s]}} {"name": "v", "mountPath": "/a%d"}`,
		"ports":        `{"container": {"ports": [%s]}} {"containerPort": %d1}`,
		"requests":     `{"container": {"resources": {"limits": {%[1]s}, "requests": {%[1]s}}}} "example.com/a%d": "1"`,
	} {
		few := 1000
		if what == "records" { // without the index, these are slower by far
			few = 100
		}
		for _, ownsAll := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, of the owner %t", what, ownsAll), func(t *testing.T) {
				was, is := time.Hour, time.Hour
				for range 8 { // a disturbed measurement is repeated; the least of all is the least disturbed
					was, is = min(was, planning(t, pattern, few, ownsAll)), min(is, planning(t, pattern, times*few, ownsAll))
					if is < most*was {
						return
					}
				}
				t.Errorf("%d times as many items take %.1f times the time (%v)", times, float64(is)/float64(was), is)
			})
		}
	}
}

// planning returns the least CPU time of a few plans for a pod with a long list. If ownsAll is true, the pod template of
// its owner has the list, too. The order of the two may differ.
func planning(t *testing.T, pattern string, length int, ownsAll bool) time.Duration {
	t.Helper()
	format, item, _ := strings.Cut(pattern, "}} ")
	var all []string
	for i := range length {
		all = append(all, fmt.Sprintf(item, i+1))
	}
	var pod map[string]map[string]any
	must(t, json.Unmarshal(fmt.Appendf(nil, format+"}}", strings.Join(all, ",")), &pod))
	text := func(long map[string]map[string]any) []byte {
		of := func(part string, short map[string]any) map[string]any {
			maps.Copy(short, long[part])
			return short
		}
		spec := of("spec", map[string]any{"containers": []any{of("container", map[string]any{"name": "web", "image": "web:1"})}})
		out, err := json.Marshal(map[string]any{"metadata": of("metadata", map[string]any{"name": "web", "namespace": "shop"}), "spec": spec})
		must(t, err)
		return out
	}
	const template = "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {default: true, pod: {spec: {initContainers: [{name: agent, restartPolicy: Always, image: 'agent:%d'}]}}}}"
	c := newCase(t, &txtar.Archive{Files: []txtar.File{
		{Name: "old.yaml", Data: fmt.Appendf(nil, template, 1)}, {Name: "new.yaml", Data: fmt.Appendf(nil, template, 2)}, {Name: "pod.yaml", Data: text(pod)},
	}})
	if !ownsAll {
		pod = nil
	}
	c.owner = fmt.Appendf(nil, `{"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"template": %s}}`, text(pod))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := time.Hour
	for range 2 {
		began := cpu.Used(t)
		if p := c.plan(c.running); p.Action == rollout.None {
			t.Fatal("the pod is current")
		}
		least = min(least, cpu.Used(t)-began)
	}
	return least
}
