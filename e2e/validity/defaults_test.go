// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	podutil "k8s.io/kubernetes/pkg/api/pod"

	"github.com/pillion-dev/pillion/inject/testing/size"
)

func init() { flag.Bool("update", false, "write the generated files anew") }

func updating() bool { return flag.Lookup("update").Value.String() == "true" }

// TestDefaults checks that inject/schema/defaults_generated.go has the defaults of Kubernetes for
// missing fields, and templates/cel/values/gated_generated.go the fields that Kubernetes drops if a feature gate
// is off.
func TestDefaults(t *testing.T) {
	size.SkipUnlessFull(t, "the files change only with the version of Kubernetes")
	d := &defaults{values: map[string]map[string]bool{}, gated: map[string]bool{}}
	d.probe(t, 2500)
	back := gates(t, "AllAlpha=true,AllBeta=true")
	d.probe(t, 2500)
	back()
	for file, want := range map[string]string{
		"../../inject/schema/defaults_generated.go":     source("schema", d.defaults()),
		"../../templates/cel/values/gated_generated.go": source("values", d.dropped()),
	} {
		if updating() {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s is not current: TEST_SIZE=full go test -run TestDefaults -update (%v)", file, err)
		}
	}
}

func parsed(podJSON []byte) object {
	var o object
	if err := json.Unmarshal(podJSON, &o); err != nil {
		panic(err)
	}
	return o
}

type defaults struct {
	values map[string]map[string]bool // place to what was seen there
	gated  map[string]bool            // false: what is dropped depends on the value
}

// probe tries random pods.
func (d *defaults) probe(t *testing.T, seeds uint64) {
	t.Helper()
	for seed := range seeds {
		m := newMaker(seed, 8)
		m.dense = true
		spec := reflect.TypeFor[corev1.PodSpec]()
		pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web"}, "spec": object{
			"containers":     []any{m.object(reflect.TypeFor[corev1.Container](), 0)},
			"volumes":        []any{m.object(reflect.TypeFor[corev1.Volume](), 0), object{"name": "none"}},
			"initContainers": []any{m.object(reflect.TypeFor[corev1.Container](), 0)},
			"hostNetwork":    m.in(2),
		}}
		full, err := sent(compact(pod))
		if err != nil {
			continue // a quantity that is none
		}
		before, after := pod["spec"], parsed(full)["spec"]
		d.compare(before, after, spec)
		d.drops(t, full, spec)
	}
}

// compare notes the fields that after has and before has not.
func (d *defaults) compare(before, after any, t reflect.Type) {
	t = deref(t)
	switch a := after.(type) {
	case object:
		b, _ := before.(object)
		if t.Kind() != reflect.Struct {
			return
		}
		for _, f := range fieldsOf(t) {
			value, ok := a[f.name]
			if !ok {
				continue
			}
			place := f.owner.Name() + "." + f.name
			there, ok := b[f.name]
			text := string(compact(value))
			zero := text == "null" || f.typ.Kind() != reflect.Pointer && slices.Contains([]string{`""`, "0", "false", "{}"}, text)
			if !ok && !zero && f.owner != reflect.TypeFor[corev1.PodSpec]() {
				d.note(place, text)
			}
			d.compare(there, value, f.typ)
		}
	case []any:
		b, _ := before.([]any)
		for i := range a {
			if i < len(b) && t.Kind() == reflect.Slice {
				d.compare(b[i], a[i], t.Elem())
			}
		}
	}
}

func (d *defaults) note(place, value string) {
	if d.values[place] == nil {
		d.values[place] = map[string]bool{}
	}
	d.values[place][value] = true
}

// drops notes the fields that are gone if all feature gates are off that can be.
func (d *defaults) drops(t *testing.T, full []byte, spec reflect.Type) {
	t.Helper()
	defer gates(t, "AllBeta=false,AllAlpha=false")()
	p, err := decoded(full)
	if err != nil {
		t.Fatal(err)
	}
	podutil.DropDisabledPodFields(p, nil)
	left, err := encoded(p)
	if err != nil {
		t.Fatal(err)
	}
	d.gone(parsed(full)["spec"], parsed(left)["spec"], spec)
}

func (d *defaults) gone(before, after any, t reflect.Type) {
	t = deref(t)
	switch b := before.(type) {
	case object:
		a, ok := after.(object)
		if t.Kind() != reflect.Struct || !ok {
			return
		}
		for _, f := range fieldsOf(t) {
			there, ok := b[f.name]
			if !ok {
				continue
			}
			place := f.owner.Name() + "." + f.name
			left, ok := a[f.name]
			if known, seen := d.gated[place]; !ok && (known || !seen) {
				d.gated[place] = true
			} else {
				d.gated[place] = false
			}
			d.gone(there, left, f.typ)
		}
	case []any:
		a, _ := after.([]any)
		for i := range b {
			if i < len(a) && t.Kind() == reflect.Slice {
				d.gone(b[i], a[i], t.Elem())
			}
		}
	}
}

// gates sets feature gates, and gives what sets them back.
func gates(t *testing.T, settings string) (back func()) {
	t.Helper()
	gate := utilfeature.DefaultMutableFeatureGate
	before := map[string]bool{}
	to := map[string]bool{}
	for name, spec := range gate.GetAll() {
		if !spec.LockToDefault && !strings.HasPrefix(string(name), "All") {
			before[string(name)] = gate.Enabled(name)
			on := strings.Contains(settings, "All"+map[string]string{"ALPHA": "Alpha", "BETA": "Beta"}[string(spec.PreRelease)]+"=true")
			if spec.PreRelease == "" {
				on = !strings.Contains(settings, "false")
			}
			to[string(name)] = on
		}
	}
	if err := gate.SetFromMap(to); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := gate.SetFromMap(before); err != nil {
			t.Fatal(err)
		}
	}
}

// source is a generated Go file.
func source(pkg, body string) string {
	text, err := format.Source([]byte("// SPDX-License-Identifier: Apache-2.0\n\n// Code generated by e2e/validity (TEST_SIZE=full go test -run TestDefaults -update). DO NOT EDIT.\n\npackage " + pkg + "\n\nimport \"sync\"\n\n" + body))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// defaults is the table of defaults as Go.
func (d *defaults) defaults() string {
	var b strings.Builder
	b.WriteString("// defaults are what the API server writes into a field that is not there, as JSON, by\n// the field's place.\nvar defaults = sync.OnceValue(func() map[string]string {\n\treturn map[string]string{\n")
	var several []string
	for _, place := range sortedKeys(d.values) {
		if len(d.values[place]) > 1 {
			several = append(several, place)
			continue
		}
		for value := range d.values[place] {
			fmt.Fprintf(&b, "\t\t%q: %s,\n", place, quoted(value))
		}
	}
	b.WriteString("\t}\n})\n\n// What it writes into these depends on the rest of the pod, see fills: " + strings.Join(several, ", ") + ".\n")
	return b.String()
}

// dropped is the table of gated fields as Go.
func (d *defaults) dropped() string {
	var b strings.Builder
	b.WriteString("// gated are the fields that the API server drops if a feature gate is off.\nvar gated = sync.OnceValue(func() map[string]bool {\n\treturn map[string]bool{\n")
	for _, place := range sortedKeys(d.gated) {
		if d.gated[place] {
			fmt.Fprintf(&b, "\t\t%q: true,\n", place)
		}
	}
	b.WriteString("\t}\n})\n")
	return b.String()
}

func quoted(s string) string {
	if strings.ContainsRune(s, '"') {
		return "`" + s + "`"
	}
	return fmt.Sprintf("%q", s)
}
