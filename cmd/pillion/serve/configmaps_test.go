// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// closed is what has come, once it is closed.
type closed chan struct{}

func (c closed) Name() string { return "test" }

func (c closed) Done() <-chan struct{} { return c }

// replica is a reloader that gets its ConfigMaps from a test.
type replica struct {
	*reloader
	come closed
}

func newReplica(t *testing.T, paths ...string) *replica {
	t.Helper()
	r := &replica{come: make(closed)}
	log := slog.New(slog.DiscardHandler)
	maps := &configMaps{log: log, synced: r.come, changed: make(chan struct{}, 1), known: map[string]*templateMap{}}
	var err error
	r.reloader, err = newReloader(sources{paths: paths, configMaps: maps}, nil, log, prometheus.NewRegistry())
	clitest.Must(t, err)
	return r
}

// sync reports that all ConfigMaps have arrived.
func (r *replica) sync() {
	close(r.come)
	r.reload()
}

// uses are the templates in use, with if they are from.
func (r *replica) uses() string {
	r.reload()
	var all []string
	for _, t := range r.set().Templates {
		all = append(all, t.Name+"@"+strings.TrimPrefix(t.File, "configmap/"))
	}
	return strings.Join(all, " ")
}

// configMap has these templates, each in a key of its own; "!" is a broken one.
func configMap(name string, age time.Duration, names ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "pillion-system", UID: types.UID(fmt.Sprint(name, age)), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}, Data: map[string]string{}}
	for _, n := range names {
		m.Data[n+".yaml"] = clitest.Template(n)
		if n == "!" {
			m.Data["bad.yaml"] = "kind: Nonsense\n"
			delete(m.Data, "!.yaml")
		}
	}
	return m
}

func (r *replica) wants(t *testing.T, uses string, problems int, details ...string) {
	t.Helper()
	if got := r.uses(); got != uses {
		t.Errorf("in use are %q, want %q", got, uses)
	}
	detail, err := r.check()
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

func TestConfigMaps(t *testing.T) {
	folder := t.TempDir()
	clitest.Write(t, folder+"/file.yaml", clitest.Template("file"))
	r := newReplica(t, folder)
	r.configMaps.take(configMap("b", time.Hour, "one", "two"))
	if _, err := r.check(); err == nil || err.Error() != "the ConfigMaps of templates are not loaded yet" {
		t.Errorf("ready: %v", err)
	}
	r.configMaps.asked(errors.New("forbidden"))
	if _, err := r.check(); err == nil || !strings.HasSuffix(err.Error(), "not loaded yet: forbidden") {
		t.Errorf("ready: %v", err)
	}
	r.configMaps.asked(nil)
	r.sync()
	if len(r.kept) != 0 {
		t.Error("what was loaded before all had come still counts")
	}
	file := "file@" + folder + "/file.yaml"
	r.wants(t, file+" one@b/one.yaml two@b/two.yaml", 0)

	// A new ConfigMap cannot take a name from an older one or from a file. Its other templates are used.
	r.configMaps.take(configMap("a", 0, "file", "one", "three"))
	r.wants(t, file+" one@b/one.yaml three@a/three.yaml two@b/two.yaml", 2,
		"; a template with another one's name is rejected since ", " (the other one is used): configmap/a/file.yaml:",
		"configmap/a/one.yaml:3: metadata.name: the template one is in configmap/b/one.yaml too, on line 3")
	// It is there when the older one goes.
	r.configMaps.drop(configMap("b", time.Hour))
	r.wants(t, file+" one@a/one.yaml three@a/three.yaml", 1)

	// A broken one that was never good is left out; others are not touched.
	r.configMaps.take(configMap("c", 0, "four", "!"))
	r.configMaps.take(configMap("a", 0, "one"))
	r.wants(t, file+" one@a/one.yaml", 2, "; configmap/c is rejected since ", " (none of it is used): configmap/c/bad.yaml:1: ")
	r.configMaps.take(configMap("c", 0, "four"))
	r.wants(t, file+" four@c/four.yaml one@a/one.yaml", 0)
	// The last valid content of a ConfigMap stays in use until it is valid again or deleted.
	r.configMaps.take(configMap("c", 0, "five", "!"))
	r.wants(t, file+" four@c/four.yaml one@a/one.yaml", 2, "; configmap/c is rejected since ", " (its last valid content is used): configmap/c/bad.yaml:1: ")
	since := (*r.rejected.Load())[0].since
	r.configMaps.take(configMap("d", 0, "six"))
	r.wants(t, file+" four@c/four.yaml one@a/one.yaml six@d/six.yaml", 2)
	if (*r.rejected.Load())[0].since != since {
		t.Error("the problem is told as a new one")
	}
	r.configMaps.take(configMap("c", time.Minute, "five", "!")) // another one of that name
	r.wants(t, file+" one@a/one.yaml six@d/six.yaml", 2, " (none of it is used)")
	r.configMaps.drop(configMap("c", 0))

	// Keys that are not files of templates are ignored, unless there are no others.
	odd := configMap("d", 0, "six")
	odd.Data["README.md"], odd.Data["kustomization.yaml"] = "# six", "kind: Kustomization"
	r.configMaps.take(odd)
	r.wants(t, file+" one@a/one.yaml six@d/six.yaml", 0)
	delete(odd.Data, "six.yaml")
	r.configMaps.take(odd)
	r.wants(t, file+" one@a/one.yaml six@d/six.yaml", 1, "configmap/d: has no key that ends in .yaml, .yml or .json")
	r.configMaps.take(configMap("d", 0))
	r.wants(t, file+" one@a/one.yaml", 0)

	// A replica that can no longer call the API server reports this, and continues.
	r.configMaps.asked(errors.New("forbidden"))
	r.wants(t, file+" one@a/one.yaml", 1, "; reading the ConfigMaps is rejected since ", " (their last known content is used): forbidden")
	r.configMaps.asked(nil)
	r.wants(t, file+" one@a/one.yaml", 0)

	// The files are a source of their own.
	clitest.Write(t, folder+"/file.yaml", "kind: Nonsense\n")
	r.configMaps.take(configMap("e", 0, "seven"))
	r.wants(t, file+" one@a/one.yaml seven@e/seven.yaml", 2, "; a newer set is rejected since ")
}

// TestReplicasAgree checks that replicas that see the same valid ConfigMaps use the same templates,
// after any history in any order.
func TestReplicasAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	all := []string{"p", "q", "r", "s", "!"}
	for range 30 {
		var last []*corev1.ConfigMap
		for i := range 4 {
			names := all[:4]
			names = slices.DeleteFunc(slices.Clone(names), func(string) bool { return random.IntN(2) == 0 })
			last = append(last, configMap(fmt.Sprint("cm", i), time.Duration(random.IntN(3))*time.Second, names...))
		}
		var said [2]string
		for i := range said {
			r := newReplica(t)
			for range 6 { // what was before
				m := last[random.IntN(4)].DeepCopy()
				m.Data = configMap("x", 0, all[random.IntN(5)], all[random.IntN(5)]).Data
				r.configMaps.take(m)
				if random.IntN(3) == 0 {
					r.configMaps.drop(last[random.IntN(4)])
				}
			}
			for _, k := range random.Perm(4) {
				r.configMaps.take(last[k])
			}
			r.sync()
			said[i] = r.set().Revision + r.uses()
			for _, rejected := range *r.rejected.Load() {
				said[i] += rejected.what + rejected.instead + rejected.err.Error()
			}
		}
		if said[0] != said[1] {
			t.Fatalf("one says %s\nthe other %s", said[0], said[1])
		}
	}
}
