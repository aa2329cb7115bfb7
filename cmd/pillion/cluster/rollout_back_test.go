// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
)

// TestRolloutBack checks what pods go back to after a content of a template has failed, with the contents of its history.
func TestRolloutBack(t *testing.T) {
	t.Parallel()
	const injected, before = "agent.pillion.dev/injected", "agent.pillion.dev/injected-before"
	const path, history = "/apis/pillion.dev/v1alpha1/clustersidecartemplates", "/apis/apps/v1/namespaces/pillion-system/controllerrevisions"
	present := rolloutAPI(t, nil, nil)[path].(map[string]any)["items"].([]any)[0]
	text, err := json.Marshal(present)
	clitest.Must(t, err)
	set, err := templates.Load(templates.Source{Name: "present.yaml", Data: text})
	clitest.Must(t, err)
	failed := set.Templates[0].Revision
	setImage := func(pod map[string]any) {
		container := pod["spec"].(map[string]any)["initContainers"].([]any)[0].(map[string]any)
		container["image"], container["resources"].(map[string]any)["limits"] = "agent:2", map[string]any{"memory": "2Mi"}
	}
	for what, test := range map[string]struct {
		records map[string]string // "old" is the earlier revision; "": no annotation
		image   bool              // of the failed content
		touched bool              // by a rollout
		invalid bool              // the earlier content
		planted bool              // another client has written another content into the revision
		action  rollout.Action    // "": it is not in the plan
		why     string
	}{
		"it was changed and proved":                   {records: map[string]string{injected: failed, before: "old"}, image: true, touched: true, action: rollout.Patch},
		"it was changed and not proved":               {records: map[string]string{injected: "old"}, image: true, touched: true, action: rollout.Patch},
		"it has the earlier content again":            {records: map[string]string{injected: failed, before: "old"}, touched: true, action: rollout.Patch},
		"it was not changed":                          {records: map[string]string{injected: "old"}},
		"it has the earlier content and record again": {records: map[string]string{injected: "old"}, touched: true},
		"it was created with it":                      {records: map[string]string{injected: failed}, image: true, action: rollout.Leave, why: "it was created with the content that has failed"},
		"the history has lost the content":            {records: map[string]string{injected: failed, before: "aaaaaaaaaaaa"}, image: true, touched: true, action: rollout.Leave, why: "revision aaaaaaaaaaaa of the template, which the pod had before, is not in its history"},
		"an old pod that nobody changed":              {records: map[string]string{injected: "aaaaaaaaaaaa"}},
		"the content is not valid any more":           {records: map[string]string{injected: failed, before: "old"}, image: true, invalid: true, action: rollout.Leave, why: "is not valid: "},
		"somebody has changed the revision":           {records: map[string]string{injected: failed, before: "old"}, image: true, touched: true, planted: true, action: rollout.Leave, why: "cannot be used: the content of revision 1 is lost, because somebody has written another one into the ControllerRevision r"},
		"it has no sidecar":                           {records: map[string]string{}},
	} {
		api := rolloutAPI(t, []string{"shop"}, nil)
		list := api[path].(map[string]any)["items"].([]any)
		template := list[0].(map[string]any)
		template["metadata"] = map[string]any{"name": "agent", "uid": "1"}
		api[path+"/agent"] = template
		pod := api["/api/v1/namespaces/shop/pods/web"].(map[string]any)
		metadata := pod["metadata"].(map[string]any)
		annotations := metadata["annotations"].(map[string]any)
		old := annotations[injected].(string)
		delete(annotations, injected)
		for key, revision := range test.records {
			if annotations[key] = revision; revision == "old" {
				annotations[key] = old
			}
		}
		if test.image {
			setImage(pod)
		}
		if test.touched {
			fields := map[string]any{"f:spec": map[string]any{"f:initContainers": map[string]any{`k:{"name":"agent"}`: map[string]any{"f:image": map[string]any{}, "f:resources": map[string]any{}}}}}
			metadata["managedFields"] = append(metadata["managedFields"].([]any), map[string]any{"manager": rollout.Manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields})
		}
		container := map[string]any{"name": "agent", "image": "agent:1", "restartPolicy": "Always", "resources": map[string]any{"limits": map[string]any{"memory": "1Mi"}}}
		if test.invalid {
			container["nonsense"] = true
		}
		spec := map[string]any{"default": true, "pod": map[string]any{"spec": map[string]any{"initContainers": []any{container}}}}
		text, err := json.Marshal(spec)
		clitest.Must(t, err)
		content, err := kube.Content(text)
		clitest.Must(t, err)
		template["status"] = map[string]any{"history": []any{map[string]any{"revision": 1, "hash": old, "digest": fmt.Sprintf("%x", sha256.Sum256(content)), "changed": "2026-01-01T00:00:00Z", "object": "r"}}}
		if test.planted {
			container["image"] = "evil:1"
		}
		revision := map[string]any{
			"metadata": map[string]any{
				"name": "r", "annotations": map[string]any{"pillion.dev/revision": old},
				"ownerReferences": []any{map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "name": "agent", "uid": "1", "controller": true}},
			},
			"revision": 1, "data": map[string]any{"spec": spec},
		}
		api[history+"/r"] = revision
		// A planted revision for each revision that a pod may name.
		planted := maps.Clone(revision)
		planted["metadata"] = map[string]any{"name": "planted", "annotations": map[string]any{"pillion.dev/revision": "aaaaaaaaaaaa"}, "ownerReferences": revision["metadata"].(map[string]any)["ownerReferences"]}
		api[history], api[history+"/planted"] = listOf(planted), planted

		c := clientOf(t, api)
		targets, err := c.Rollout(t.Context(), Query{Namespaces: []string{"shop"}}, Bounds{Object: "clustersidecartemplate/agent", InPlace: true, Revision: failed, Undo: true}, io.Discard)
		clitest.Must(t, err)
		if test.action == "" {
			if len(targets.Workloads) > 0 {
				t.Errorf("%s: the plan is %+v", what, targets.Workloads[0].Behind[0])
			}
			continue
		}
		if len(targets.Workloads) != 1 {
			t.Errorf("%s: the plan has %d workloads", what, len(targets.Workloads))
			continue
		}
		p := targets.Workloads[0].Behind[0]
		if p.Action != test.action || !strings.Contains(p.Why, test.why) {
			t.Errorf("%s: %s, %q", what, p.Action, p.Why)
		}
		if value, recorded := p.Records[before]; test.action == rollout.Patch && test.records[injected] == failed && (p.Records[injected] != old || !recorded || value != "") {
			t.Errorf("%s: the records become %v, want %s", what, p.Records, old)
		}
	}
}
