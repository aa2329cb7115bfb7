// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// revisedTemplate is an API with a template, its history, and pods. It records what patches of the template send.
type revisedTemplate struct {
	api     clitest.API
	patches []string
	denies  int // the code of the answer to a patch
}

func revision(name string, number int, image string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name}, "revision": number, "data": map[string]any{"spec": contentWith(image)},
	}
}

// recordOf is the record of a revision in the status of the template.
func recordOf(t *testing.T, revision map[string]any) map[string]any {
	t.Helper()
	spec, err := json.Marshal(revision["data"].(map[string]any)["spec"])
	clitest.Must(t, err)
	content, err := kube.Content(spec)
	clitest.Must(t, err)
	image := string(content)[strings.Index(string(content), "log-agent:")+len("log-agent:"):][:1]
	return map[string]any{
		"revision": revision["revision"], "hash": "00000000000" + image, "changed": "2026-01-0" + image + "T00:00:00Z", "digest": fmt.Sprintf("%x", sha256.Sum256(content)),
		"object": revision["metadata"].(map[string]any)["name"],
	}
}

func contentWith(image string) map[string]any {
	return map[string]any{"default": true, "order": 9007199254740993, "pod": map[string]any{"spec": map[string]any{"initContainers": []any{map[string]any{"name": "log-agent", "image": "log-agent:" + image, "restartPolicy": "Always"}}}}}
}

func newRevised(t *testing.T, namespace, strategy string, revisions ...map[string]any) *revisedTemplate {
	t.Helper()
	r := &revisedTemplate{}
	spec := contentWith("3")
	spec["rollout"] = map[string]any{"strategy": strategy}
	kind, path, history := "ClusterSidecarTemplate", templateObjects, "/apis/apps/v1/namespaces/pillion-system/controllerrevisions"
	metadata := map[string]any{"name": "log-agent", "uid": "1", "resourceVersion": "9", "generation": 7}
	if namespace != "" {
		kind, path = "SidecarTemplate", "/apis/pillion.dev/v1alpha1/namespaces/"+namespace+"/sidecartemplates"
		history, metadata["namespace"] = "/apis/apps/v1/namespaces/"+namespace+"/controllerrevisions", namespace
	}
	template := map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
	recorded := []any{}
	pod := func(hash string) any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"log-agent.pillion.dev/injected": hash}}}
	}
	pods := map[string]any{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": []any{pod("000000000001"), pod("000000000003"), pod("000000000003")}}
	r.api = clitest.API{"/api/v1/pods": pods, "/api/v1/namespaces/" + namespace + "/pods": pods}
	revisions = slices.SortedFunc(slices.Values(revisions), func(a, b map[string]any) int { return b["revision"].(int) - a["revision"].(int) }) // as the controller records them
	for _, one := range revisions {
		recorded = append(recorded, recordOf(t, one))
		r.api[history+"/"+one["metadata"].(map[string]any)["name"].(string)] = one
	}
	template["status"] = map[string]any{"history": recorded}
	r.api[path] = map[string]any{"kind": kind + "List", "apiVersion": "pillion.dev/v1alpha1", "items": []any{template}}
	r.api[path+"/log-agent"] = clitest.Answer(func(req *http.Request) any {
		if req.Method == http.MethodPatch {
			body, _ := io.ReadAll(req.Body)
			r.patches = append(r.patches, req.URL.RawQuery+" "+string(body))
			if r.denies != 0 {
				text, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(r.denies), Reason: metav1.StatusReasonInvalid, Message: "no"})
				return clitest.Failure{Code: r.denies, Text: string(text)}
			}
		}
		return template
	})
	return r
}

func (r *revisedTemplate) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, told bytes.Buffer
	code = run(append([]string{"rollout"}, append(args, "--kubeconfig", clitest.Kubeconfig(t, r.api))...), strings.NewReader(""), &out, &told)
	return code, out.String(), told.String()
}

// TestRolloutHistory checks the table, the content of one revision, and JSON.
func TestRolloutHistory(t *testing.T) {
	t.Parallel()
	r := newRevised(t, "", "InPlace", revision("a", 4, "3"), revision("b", 1, "1"), revision("c", 3, "2"))
	_, stdout, stderr := r.run(t, "history", "log-agent")
	want := `clustersidecartemplate/log-agent
REVISION  HASH          CHANGED               PODS  IMAGES
1         000000000001  2026-01-01T00:00:00Z  1     log-agent:1
3         000000000002  2026-01-02T00:00:00Z  0     log-agent:2
4         000000000003  2026-01-03T00:00:00Z  2     log-agent:3
Revision 4 is the present content.
`
	if stdout != want {
		t.Errorf("it prints %s%s, want %s", stdout, stderr, want)
	}
	if _, stdout, stderr = r.run(t, "history", "log-agent", "--revision", "3"); !strings.HasPrefix(stdout, "default: true\norder: 9007199254740993\npod:\n  spec:\n    initContainers:\n    - image: log-agent:2\n") {
		t.Errorf("the content of revision 3 is %s%s", stdout, stderr)
	}
	if _, stdout, _ = r.run(t, "history", "log-agent", "--revision", "3", "-o", "json"); !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"order": 9007199254740993`) {
		t.Errorf("as JSON, it is %s", stdout)
	}
	r.api[revisionsOfCluster+"b"] = plantedRevision("b", 1)
	if _, stdout, _ = r.run(t, "history", "log-agent"); !strings.Contains(stdout, "log-agent:3\nRevision 4 is the present content.\nthe content of revision 1 is lost, because somebody has written another one into the ControllerRevision b in the namespace pillion-system: use another revision.\n") {
		t.Errorf("after somebody has changed a revision, it prints %s", stdout)
	}
	r.api["/api/v1/pods"] = nil // the user may not list them
	var of templateHistory
	if _, stdout, _ = r.run(t, "history", "log-agent", "-o", "json"); json.Unmarshal([]byte(stdout), &of) != nil || len(of.Revisions) != 3 || !of.Revisions[2].Current || of.Revisions[1].Current || of.Revisions[0].Pods != nil || of.Revisions[0].Problem == "" || of.Revisions[1].Problem != "" {
		t.Errorf("the JSON is %s", stdout)
	}
	for args, want := range map[string]string{
		"log-agent --revision 2":  "clustersidecartemplate/log-agent: the history has no revision 2; it has 1, 3, 4",
		"log-agents":              `there is no ClusterSidecarTemplate "log-agents"; did you mean "log-agent"?`,
		"shop/other":              `there is no SidecarTemplate "other" in the namespace shop; for a ClusterSidecarTemplate, leave out the namespace`,
		"other":                   `there is no ClusterSidecarTemplate "other"; for a SidecarTemplate, name its namespace: NAMESPACE/other. Templates of files have no history`,
		"log-agent --revision -1": "--revision must be at least 0, not -1",
		"log-agent other":         "name one template, not 2",
		"shop/":                   "the name of the template is empty",
		"Shop/log-agent":          `"Shop" is not the name of a namespace`,
	} {
		code, stdout, stderr := r.run(t, append([]string{"history"}, strings.Fields(args)...)...)
		if code == exitOK || stdout != "" || !strings.Contains(strings.Join(strings.Fields(stderr), " "), want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// TestRolloutUndo checks which content undo writes, that it writes only if the template has not changed meanwhile, and that the
// settings of the rollout stay.
func TestRolloutUndo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args, namespace, strategy string
		revisions                 []map[string]any
		denies, code              int
		image                     string // "": nothing is written
		want                      string
	}{
		{"log-agent --yes", "", "InPlace", []map[string]any{revision("a", 4, "3"), revision("b", 3, "2"), revision("c", 1, "1")}, 0, exitOK, "2", "The controller updates running pods in the namespaces with the label pillion.dev/rollout: enabled."},
		{"log-agent --yes", "", "OnCreate", []map[string]any{revision("a", 4, "3"), revision("b", 3, "2")}, 0, exitOK, "2", "New pods get it. To update running pods: pillion rollout --template log-agent --dry-run"},
		{"shop/log-agent --yes", "shop", "OnCreate", []map[string]any{revision("b", 3, "2")}, 0, exitOK, "2", "rollout --template shop/log-agent --dry-run"},
		{"shop/log-agent --yes", "shop", "OnCreate", []map[string]any{revision("b", 3, "2")}, 0, exitOK, "2", "sidecartemplate/shop/log-agent has the content of revision 3 (000000000002) again."},
		{"log-agent --yes --to-revision 1", "", "InPlace", []map[string]any{revision("a", 4, "3"), revision("b", 3, "2"), revision("c", 1, "1")}, 0, exitOK, "1", "-    - image: log-agent:3 + - image: log-agent:1"},
		{"log-agent --yes --to-revision 4", "", "InPlace", []map[string]any{revision("a", 4, "3"), revision("b", 3, "2")}, 0, exitOK, "", "clustersidecartemplate/log-agent has the content of revision 4 already."},
		{"log-agent --yes", "", "InPlace", []map[string]any{revision("a", 4, "3")}, 0, exitProblem, "", "has no earlier revision: it has not changed since the history began"},
		{"log-agent --yes", "", "InPlace", nil, 0, exitProblem, "", "has no history: pillion controller keeps one from the moment when it has the component rollout"},
		{"log-agent --yes --to-revision 9", "", "InPlace", []map[string]any{revision("a", 4, "3")}, 0, exitProblem, "", "the history has no revision 9; it has 4"},
		{"log-agent --yes", "", "InPlace", []map[string]any{revision("b", 3, "2")}, http.StatusUnprocessableEntity, exitProblem, "", "somebody has changed clustersidecartemplate/log-agent meanwhile: run the same command again"},
		{"log-agent --dry-run", "", "InPlace", []map[string]any{revision("b", 3, "2")}, 0, exitOK, "", "+++ revision 3"},
		{"log-agent", "", "InPlace", []map[string]any{revision("b", 3, "2")}, 0, exitUsage, "", "standard input is not a terminal: use --yes, or --dry-run"},
	} {
		r := newRevised(t, c.namespace, c.strategy, c.revisions...)
		r.denies = c.denies
		code, stdout, stderr := r.run(t, append([]string{"undo"}, strings.Fields(c.args)...)...)
		if said := strings.Join(strings.Fields(stdout+stderr), " "); code != c.code || !strings.Contains(said, strings.Join(strings.Fields(c.want), " ")) {
			t.Errorf("%s: exit code %d: %s", c.args, code, said)
		}
		written := ""
		for _, patch := range r.patches {
			if !strings.Contains(patch, "dryRun=All") {
				written = patch
			}
		}
		if c.image == "" {
			if written != "" {
				t.Errorf("%s: it writes %s", c.args, written)
			}
			continue
		}
		for _, want := range []string{`"path":"/metadata/generation","value":7`, "log-agent:" + c.image + `"`, `"order":9007199254740993,`, `"rollout":{"strategy":"` + c.strategy + `"}`, "fieldManager=pillion-rollout"} {
			if !strings.Contains(written, want) || len(r.patches) != 2 || !strings.Contains(r.patches[0], "dryRun=All") {
				t.Errorf("%s: it writes %s, without %s", c.args, r.patches, want)
			}
		}
	}
}

const revisionsOfCluster = "/apis/apps/v1/namespaces/pillion-system/controllerrevisions/"

// plantedRevision is a ControllerRevision that another client has made to look like one of the template.
func plantedRevision(name string, number int) map[string]any {
	planted := revision(name, number, "666")
	planted["metadata"] = map[string]any{
		"name": name, "annotations": map[string]any{"pillion.dev/revision": "000000000002", "pillion.dev/changed": "2026-01-09T00:00:00Z"},
		"labels":          map[string]any{kube.LabelTemplate: "log-agent", kube.LabelTemplateKind: "ClusterSidecarTemplate"},
		"ownerReferences": []any{map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "name": "log-agent", "uid": "1", "controller": true}},
	}
	return planted
}

// TestRolloutUndoPlanted checks that undo and history use no content that Pillion has not recorded, whatever ControllerRevisions there are.
func TestRolloutUndoPlanted(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                "has the content of revision 3 (000000000002) again",
		"--to-revision 9": "the history has no revision 9; it has 3, 4",
	} {
		r := newRevised(t, "", "InPlace", revision("a", 4, "3"), revision("b", 3, "2"))
		planted := plantedRevision("c", 9)
		r.api[revisionsOfCluster+"c"] = planted
		r.api[strings.TrimSuffix(revisionsOfCluster, "/")] = map[string]any{"kind": "ControllerRevisionList", "apiVersion": "apps/v1", "metadata": map[string]any{}, "items": []any{planted}}
		_, stdout, stderr := r.run(t, strings.Fields("undo log-agent --yes "+args)...)
		if said := strings.Join(strings.Fields(stdout+stderr), " "); !strings.Contains(said, want) || strings.Contains(strings.Join(r.patches, ""), "666") {
			t.Errorf("%s: it prints %s, and writes %s", args, said, r.patches)
		}
	}
	r := newRevised(t, "", "InPlace", revision("a", 4, "3"), revision("b", 3, "2"))
	r.api[revisionsOfCluster+"b"] = plantedRevision("b", 3)
	code, stdout, stderr := r.run(t, "undo", "log-agent", "--yes")
	if said := strings.Join(strings.Fields(stdout+stderr), " "); code != exitProblem || len(r.patches) > 0 || !strings.Contains(said, "somebody has written another one into the ControllerRevision b in the namespace pillion-system: use another revision") {
		t.Errorf("if the content is another one: exit code %d, %s, it writes %s", code, said, r.patches)
	}
}
