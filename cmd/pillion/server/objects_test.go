// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// replica is a templateReloader that gets its objects from a test.
type replica struct {
	*templateReloader
	come       chan struct{} // closed when all objects have come
	generation int64
	stored     map[string][]byte // what the API server has, by path
	asked      int               // how often an object was read from it
}

// RoundTrip answers as the API server.
func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	r.asked++
	w := httptest.NewRecorder()
	if text := r.stored[request.URL.Path]; text != nil {
		_, _ = w.Write(text)
	} else {
		w.WriteHeader(http.StatusNotFound)
	}
	return w.Result(), nil
}

func newReplica(t testing.TB, paths ...string) *replica {
	t.Helper()
	r := &replica{come: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	r.stored = map[string][]byte{}
	client, err := kube.NewRESTClient(&rest.Config{Host: "https://api.example", Transport: r, QPS: -1})
	clitest.Must(t, err)
	all := followObjects(client, kube.NewLimits(), log)
	all.kinds = []*kind{{name: "sidecartemplates", synced: r.come}}
	r.templateReloader, err = newTemplateReloader(sources{paths: paths, objects: all}, nil, log, prometheus.NewRegistry())
	clitest.Must(t, err)
	r.later = func(time.Duration, func()) {}
	return r
}

// sync reports that all objects have arrived.
func (r *replica) sync() {
	close(r.come)
	r.objects.compileOnceRead(context.Background())
	r.reloadTemplates()
}

// uses are the templates in use, each with its file or object.
func (r *replica) uses() string {
	r.objects.readMissing(context.Background())
	r.reloadTemplates()
	var all []string
	for _, t := range r.currentSet().Templates {
		all = append(all, t.ID()+"@"+t.File)
	}
	return strings.Join(all, " ")
}

// put applies a template that annotates pods with its name and a string. The name is NAME or
// NAMESPACE/NAME, and the string "!" is a mistake.
func (r *replica) put(name, text string, spec ...string) *unstructured.Unstructured {
	r.generation++
	o := templateObject(name)
	o.SetGeneration(r.generation)
	annotation := map[string]any{"put.example.com/" + o.GetName(): text}
	if text == "!" {
		annotation = map[string]any{"pillion.dev/x": "y"}
	}
	of := map[string]any{"default": true, "pod": map[string]any{"metadata": map[string]any{"annotations": annotation}}}
	for _, field := range spec {
		key, value, _ := strings.Cut(field, ": ")
		of[key] = value == "true"
	}
	o.Object["spec"] = of
	r.take(o)
	return o
}

func (r *replica) take(o *unstructured.Unstructured) {
	text, _ := o.MarshalJSON()
	r.stored[fmt.Sprintf("/apis/pillion.dev/v1alpha1/namespaces/%s/sidecartemplates/%s", o.GetNamespace(), o.GetName())] = text
	e, _ := r.objects.catalog.Read(text)
	r.objects.catalog.Put(e)
}

func (r *replica) drop(name string) {
	r.objects.catalog.Drop(nameOf(name))
}

// nameOf is the name of a template, from NAME or NAMESPACE/NAME.
func nameOf(name string) types.NamespacedName {
	o := templateObject(name)
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func templateObject(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate"}}
	namespace, own, ok := strings.Cut(name, "/")
	if ok {
		o.SetKind("SidecarTemplate")
		o.SetNamespace(namespace)
		name = own
	}
	o.SetName(name)
	o.SetUID(types.UID("1"))
	return o
}

func (r *replica) wants(t *testing.T, uses string, problems int, details ...string) {
	t.Helper()
	if got := r.uses(); got != uses {
		t.Errorf("in use are %q, want %q", got, uses)
	}
	detail, err := r.checkReadiness()
	clitest.Must(t, err)
	for _, d := range details {
		if !strings.Contains(detail, d) {
			t.Errorf("the detail lacks %q: %s", d, detail)
		}
	}
	if got := testutil.ToFloat64(r.problems); got != float64(problems) || problems == 0 != !strings.Contains(detail, ";") {
		t.Errorf("%v problems, want %d: %s", got, problems, detail)
	}
}

func TestObjects(t *testing.T) {
	folder := t.TempDir()
	clitest.Write(t, folder+"/file.yaml", clitest.Template("file"))
	r := newReplica(t, folder)
	r.put("one", "1")
	if _, err := r.checkReadiness(); err == nil || err.Error() != "the templates are not loaded yet" {
		t.Errorf("ready: %v", err)
	}
	r.objects.recordOutcome(r.objects.kinds[0], errors.New("forbidden"))
	if _, err := r.checkReadiness(); err == nil || err.Error() != "the sidecartemplates are not loaded yet: forbidden" {
		t.Errorf("ready: %v", err)
	}
	r.objects.recordOutcome(r.objects.kinds[0], nil)
	r.sync()
	if len(r.current.Load().others.kept) != 0 {
		t.Error("what was loaded before all had come still counts")
	}
	const one, four = " one@clustersidecartemplate/one", " four@clustersidecartemplate/four"
	file := "file@" + folder + "/file.yaml"
	r.wants(t, file+one, 0)

	// The mounted folder wins, and the template of a namespace never displaces one of the cluster.
	r.put("file", "2")
	r.put("team-a/one", "3")
	r.put("team-a/two", "4")
	r.put("team-b/two", "5")
	const two = " team-a/two@sidecartemplate/team-a/two team-b/two@sidecartemplate/team-b/two"
	r.wants(t, file+one+two, 2, "; a template with another one's name is rejected since ", " (the other one is used): clustersidecartemplate/file: metadata.name: the template file is also in "+folder+"/file.yaml:3",
		"sidecartemplate/team-a/one: metadata.name: the ClusterSidecarTemplate of this name takes precedence (clustersidecartemplate/one); use another name")
	r.drop("file")
	r.drop("one")
	r.wants(t, file+" team-a/one@sidecartemplate/team-a/one"+two, 0)
	for _, name := range []string{"team-a/one", "team-a/two", "team-b/two"} {
		r.drop(name)
	}

	// A broken one that was never good is left out; others are not touched.
	r.put("four", "!")
	r.put("one", "1")
	r.wants(t, file+one, 1, "; clustersidecartemplate/four is rejected since ", " (it is not used): clustersidecartemplate/four: spec.pod.metadata.annotations[\"pillion.dev/x\"]: ")
	r.put("four", "1")
	r.wants(t, file+four+one, 0)
	// Its last valid content stays in use until it is valid again or deleted.
	r.put("four", "!")
	r.wants(t, file+four+one, 1, "; clustersidecartemplate/four is rejected since ", " (its last valid content is used): ")
	since := (*r.rejected.Load())[0].since
	r.put("six", "1")
	r.wants(t, file+four+one+" six@clustersidecartemplate/six", 1)
	if (*r.rejected.Load())[0].since != since {
		t.Error("the problem is told as a new one")
	}
	again := r.put("four", "!")
	again.SetUID("2") // another one of that name
	r.take(again)
	r.wants(t, file+one+" six@clustersidecartemplate/six", 1, " (it is not used)")
	r.drop("four")
	r.wants(t, file+one+" six@clustersidecartemplate/six", 0)

	// A change of its status alone compiles nothing.
	before := r.objects.known[nameOf("six")]
	same := templateObject("six")
	same.SetGeneration(before.Generation)
	r.take(same)
	if r.objects.known[nameOf("six")] != before {
		t.Error("an object with the same generation is compiled again")
	}
	// While the API server does not answer, the last content is used.
	r.objects.recordOutcome(r.objects.kinds[0], errors.New("it is gone"))
	r.wants(t, file+one+" six@clustersidecartemplate/six", 1, "; reading the sidecartemplates is rejected since ", " (their last known content is used): it is gone")
}

// TestObjectsOrder checks that replicas that see the same changes in another order, or only the result,
// have the same templates.
func TestObjectsOrder(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		one, two, late := newReplica(t), newReplica(t), newReplica(t)
		last := map[string]func(*replica){}
		var changes []func(*replica)
		for i := range 40 {
			name := []string{"a", "b", "x/a", "x/c", "y/c", "y/d"}[random.IntN(6)]
			text := fmt.Sprint(i)
			change := func(r *replica) { r.put(name, text) }
			if random.IntN(4) == 0 {
				change = func(r *replica) { r.drop(name) }
			}
			changes, last[name] = append(changes, change), change
		}
		for _, change := range changes {
			change(one)
			if random.IntN(3) == 0 {
				one.reloadTemplates()
			}
		}
		for _, r := range []*replica{two, late} {
			names := slices.Sorted(func(yield func(string) bool) {
				for name := range last {
					if !yield(name) {
						return
					}
				}
			})
			random.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
			for _, name := range names {
				last[name](r)
			}
		}
		for _, r := range []*replica{one, two, late} {
			r.sync()
		}
		want := one.uses()
		for _, r := range []*replica{one, two, late} {
			if got := r.uses(); got != want || r.currentSet().Revision != one.currentSet().Revision {
				t.Fatalf("seed %d: %q, want %q", seed, got, want)
			}
		}
		for _, namespace := range []string{"", "x", "y", "z"} {
			a, _ := one.injectorAndJudge(namespace)
			b, _ := two.injectorAndJudge(namespace)
			if a.Set().Revision != b.Set().Revision {
				t.Errorf("seed %d: the namespace %q differs", seed, namespace)
			}
		}
	}
}
