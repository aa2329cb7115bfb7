// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/inject/testing/size"
)

// revisionsAPI plays the API server for the ControllerRevisions of one namespace, and for the status of one template.
type revisionsAPI struct {
	mu       sync.Mutex
	objects  map[string]map[string]any
	recorded json.RawMessage // status.history of the template
	version  int
	writes   int
}

func (a *revisionsAPI) newHistory(t *testing.T, system string) *History {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := NewRESTClient(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return NewHistory(client, system)
}

func (a *revisionsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/apps/v1/namespaces/"), "/controllerrevisions")
	name = strings.TrimPrefix(name, "/")
	fail := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason})
	}
	body, _ := io.ReadAll(r.Body)
	var sent map[string]any
	_ = json.Unmarshal(body, &sent)
	metadata, _ := sent["metadata"].(map[string]any)
	if r.Method != http.MethodGet {
		a.writes++
	}
	if strings.HasPrefix(r.URL.Path, "/apis/pillion.dev/") {
		var of struct {
			Status struct {
				History json.RawMessage `json:"history"`
			} `json:"status"`
		}
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/agent/status") && json.Unmarshal(body, &of) == nil {
			a.recorded = of.Status.History
		}
		_, _ = w.Write(a.templateJSON())
		return
	}
	switch object := a.objects[name]; {
	case r.Method == http.MethodPost:
		if name = metadata["name"].(string); a.objects[name] != nil {
			fail(http.StatusConflict, metav1.StatusReasonAlreadyExists)
			return
		}
		a.putObject(sent)
		_ = json.NewEncoder(w).Encode(sent)
	case object == nil:
		fail(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodDelete:
		delete(a.objects, name)
		_ = json.NewEncoder(w).Encode(object)
	default:
		_ = json.NewEncoder(w).Encode(object)
	}
}

// templateJSON returns the template.
func (a *revisionsAPI) templateJSON() []byte {
	text, _ := json.Marshal(map[string]any{"metadata": map[string]any{"name": "agent"}, "status": map[string]any{"history": a.recorded}})
	return text
}

func (a *revisionsAPI) putObject(object map[string]any) {
	of := object["metadata"].(map[string]any)
	a.version++
	of["resourceVersion"] = fmt.Sprint(a.version)
	if a.objects == nil {
		a.objects = map[string]map[string]any{}
	}
	a.objects[of["name"].(string)] = object
}

func specWith(image int) []byte {
	return fmt.Appendf(nil, `{"default":true,"pod":{"spec":{"initContainers":[{"name":"agent","image":"agent:%d"}]}},"rollout":{"strategy":"InPlace","first":%[1]d}}`, image)
}

// TestHistory changes a template at random, and checks that its history has the last contents, each once, in the order in
// which the template last got them, and that no object of others changes.
func TestHistory(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 1))
	for range size.Choose(t, 20, 200) {
		for _, e := range []*Entry{{Name: "agent", UID: "1"}, {Namespace: "shop", Name: "agent", UID: "1"}} {
			a := &revisionsAPI{}
			h := a.newHistory(t, "pillion-system")
			others := addStrangers(a, e, random)
			before, err := json.Marshal(others)
			if err != nil {
				t.Fatal(err)
			}
			most, now := 1+random.IntN(5), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var model []int // the newest content is the first
			for range 15 {
				image := random.IntN(8)
				now = now.Add(time.Second)
				if err := h.Keep(t.Context(), e, Present{specWith(image), fmt.Sprintf("%012x", image), now}, most); err != nil {
					t.Fatal(err)
				}
				model = append([]int{image}, slices.DeleteFunc(slices.Clone(model), func(i int) bool { return i == image })...)
				model = model[:min(most, len(model))]
				checkHistory(t, a, h, e, model)
			}
			after, err := json.Marshal(others)
			if err != nil {
				t.Fatal(err)
			}
			for name := range others {
				if a.objects[name] == nil {
					t.Errorf("%s is gone", name)
				}
			}
			if string(before) != string(after) {
				t.Errorf("objects of others have changed from %s to %s", before, after)
			}
		}
	}
}

// plantedRevision returns a ControllerRevision that another client has made to look like one of the template.
func plantedRevision(e *Entry, name string, number int, spec []byte) map[string]any {
	return map[string]any{
		"metadata": map[string]any{
			"name": name, "labels": map[string]any{LabelTemplate: e.Name, LabelTemplateKind: e.Kind()}, "annotations": map[string]any{"pillion.dev/revision": "000000000001"},
			"ownerReferences": []any{map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": e.Kind(), "name": e.Name, "uid": string(e.UID), "controller": true}},
		},
		"revision": number, "data": map[string]any{"spec": json.RawMessage(spec)},
	}
}

// addStrangers adds ControllerRevisions that the controller has not written: of a StatefulSet, of an earlier template of this name, with
// the name that one of the template would have, and one that is like those of the template.
func addStrangers(a *revisionsAPI, e *Entry, random *rand.Rand) map[string]map[string]any {
	of := map[string]any{LabelTemplate: e.Name, LabelTemplateKind: e.Kind()}
	owner := []any{map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": e.Kind(), "name": e.Name, "uid": "0", "controller": true}}
	a.putObject(map[string]any{"metadata": map[string]any{"name": "db-1", "labels": map[string]any{"app": "db"}}, "revision": 1})
	a.putObject(map[string]any{"metadata": map[string]any{"name": "earlier", "labels": of, "ownerReferences": owner}, "revision": 99, "data": map[string]any{"spec": map[string]any{"default": true}}})
	a.putObject(map[string]any{"metadata": map[string]any{"name": "broken", "labels": of}, "revision": 100, "data": "text"})
	a.putObject(plantedRevision(e, "planted", 101, specWith(random.IntN(8))))
	content, _ := Content(specWith(random.IntN(8)))
	a.putObject(map[string]any{"metadata": map[string]any{"name": strings.ToLower(e.Kind()) + ".agent." + digestOf(content)[:16]}, "data": map[string]any{"spec": map[string]any{}}})
	return maps.Clone(a.objects)
}

func checkHistory(t *testing.T, a *revisionsAPI, h *History, e *Entry, model []int) {
	t.Helper()
	all, err := Recorded(a.templateJSON())
	if err != nil {
		t.Fatal(err)
	}
	var have []int
	for i, r := range all {
		if _, err := h.Fetch(t.Context(), e.Key(), r); err != nil {
			t.Fatal(err)
		}
		var image int
		if _, err := fmt.Sscanf(strings.Join(r.Images, ","), "agent:%d", &image); err != nil {
			t.Fatal(err)
		}
		have = append(have, image)
		if r.Hash != fmt.Sprintf("%012x", image) || i > 0 && (r.Revision >= all[i-1].Revision || r.Changed.After(all[i-1].Changed.Time)) {
			t.Errorf("revision %d is %+v", i, r)
		}
	}
	if !slices.Equal(have, model) {
		t.Errorf("the history is %v, want %v", have, model)
	}
	present, err := Content(specWith(model[0]))
	if err != nil {
		t.Fatal(err)
	}
	switch back, err := Earlier(all, present, 0); {
	case len(model) == 1:
		if err != ErrNoEarlier { //nolint:errorlint // it is not wrapped
			t.Errorf("the earlier one of a single content is %v, %v", back, err)
		}
	case err != nil || !slices.Equal(back.Images, []string{fmt.Sprintf("agent:%d", model[1])}):
		t.Errorf("the earlier one is %v, %v", back, err)
	default:
		content, err := h.Fetch(t.Context(), e.Key(), back)
		if want, _ := Content(specWith(model[1])); err != nil || string(content) != string(want) {
			t.Errorf("its content is %s, %v", content, err)
		}
	}
}

// TestHistoryWrites checks that the history is written only if there is something new, and not without an end if all names
// are taken.
func TestHistoryWrites(t *testing.T) {
	t.Parallel()
	a, e, now := &revisionsAPI{}, &Entry{Name: "agent", UID: "1"}, time.Now()
	h := a.newHistory(t, "pillion-system")
	for i, settings := range []string{`"first":1`, `"first":2`, `"paused":true`} {
		spec := strings.Replace(string(specWith(1)), `"first":1`, settings, 1)
		if err := h.Keep(t.Context(), e, Present{[]byte(spec), "000000000001", now.Add(time.Duration(i) * time.Second)}, 10); err != nil || a.writes != 2 {
			t.Errorf("%s: there were %d writes, %v", settings, a.writes, err)
		}
	}
	if err := h.Keep(t.Context(), e, Present{specWith(1), "000000000002", now}, 10); err != nil || a.writes != 4 || len(a.objects) != 1 {
		t.Errorf("after a new hash of the same content, there were %d writes of %d objects, %v", a.writes, len(a.objects), err)
	}
	b := &revisionsAPI{}
	content, _ := Content(specWith(1))
	for i := range collisions {
		name := "clustersidecartemplate.agent." + digestOf(content)[:16]
		if i > 0 {
			name += fmt.Sprintf(".%d", i)
		}
		b.putObject(map[string]any{"metadata": map[string]any{"name": name}})
	}
	err := b.newHistory(t, "sidecars").Keep(t.Context(), e, Present{specWith(1), "000000000001", now}, 10)
	if err == nil || !strings.Contains(err.Error(), "in the namespace sidecars; delete it") || b.writes != collisions {
		t.Errorf("if all names are taken, the error is %v, after %d writes", err, b.writes)
	}
	if string(b.recorded) != "" {
		t.Errorf("the status records %s, which no object has", b.recorded)
	}
}

// TestPlantedRevisions checks that nothing which other clients write into ControllerRevisions gets into a template: a new revision that
// looks like Pillion's, another content in Pillion's own, or an object with the name of the next one.
func TestPlantedRevisions(t *testing.T) {
	t.Parallel()
	const evil = 66
	for _, e := range []*Entry{{Name: "agent", UID: "1"}, {Namespace: "shop", Name: "agent", UID: "1"}} {
		a := &revisionsAPI{}
		h, now := a.newHistory(t, "pillion-system"), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		keep := func(image int) {
			t.Helper()
			if err := h.Keep(t.Context(), e, Present{specWith(image), fmt.Sprintf("%012x", image), now}, 3); err != nil {
				t.Fatal(err)
			}
		}
		back := func() (string, error) {
			t.Helper()
			all, err := Recorded(a.templateJSON())
			if err != nil {
				t.Fatal(err)
			}
			present, _ := Content(specWith(2))
			r, err := Earlier(all, present, 0)
			if err != nil {
				return "", err
			}
			content, err := h.Fetch(t.Context(), e.Key(), r)
			return string(content), err
		}
		keep(1)
		keep(2)
		own, err := Recorded(a.templateJSON())
		if err != nil || len(own) != 2 {
			t.Fatalf("the status records %v, %v", own, err)
		}
		a.putObject(plantedRevision(e, own[1].Object+".x", 99, specWith(evil)))
		want, _ := Content(specWith(1))
		if got, err := back(); err != nil || got != string(want) {
			t.Errorf("beside a planted revision, the earlier content is %s, %v; want %s", got, err, want)
		}
		a.putObject(plantedRevision(e, own[1].Object, 1, specWith(evil))) // a user who may change ControllerRevisions or create them again
		if got, err := back(); !errors.Is(err, ErrLost) || got != "" {
			t.Errorf("after its content was replaced, the earlier one is %q, %v; want an error", got, err)
		}
		keep(1)
		if content, err := h.Fetch(t.Context(), e.Key(), mustRecord(t, a)[0]); err != nil || string(content) != string(want) {
			t.Errorf("after the template got the content again, it is %s, %v; want %s", content, err, want)
		}
		// One with the name of the next content is not taken for it, and not changed.
		next, _ := Content(specWith(3))
		name := strings.ToLower(e.Kind()) + ".agent." + digestOf(next)[:16]
		a.putObject(plantedRevision(e, name, 1, specWith(evil)))
		keep(3)
		if content, err := h.Fetch(t.Context(), e.Key(), mustRecord(t, a)[0]); err != nil || string(content) != string(next) || !strings.Contains(fmt.Sprint(a.objects[name]["data"]), "map[spec:") {
			t.Errorf("if another object has its name, the content is %s, %v; want %s", content, err, next)
		}
		delete(a.objects, mustRecord(t, a)[1].Object)
		if _, err := h.Fetch(t.Context(), e.Key(), mustRecord(t, a)[1]); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "has deleted") {
			t.Errorf("after it was deleted, the error is %v", err)
		}
	}
}

func mustRecord(t *testing.T, a *revisionsAPI) []*Revision {
	t.Helper()
	all, err := Recorded(a.templateJSON())
	if err != nil {
		t.Fatal(err)
	}
	return all
}
