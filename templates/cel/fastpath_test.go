// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// expressions makes expressions of the forms that have direct functions, and of some other forms.
type expressions struct{ *rand.Rand }

func (r expressions) pick(all ...string) string { return all[r.IntN(len(all))] }

func (r expressions) text(depth int) string {
	if depth == 0 {
		return r.pick(`''`, `'web'`, `'app'`, `'ä"\\'`, "params.s", "params.q", "params.?o.orValue(ns.name)", "params.?a.orValue('x')", "w", "k.name", "ns.name", "serviceAccount.name", "request.operation", "request.username",
			"container.name", "container.image", "container.imagePullPolicy", "pod.metadata.namespace", "pod.spec.serviceAccountName", "pod.spec.os.name")
	}
	switch r.IntN(11) {
	case 8:
		return fmt.Sprintf("%s.orValue(%s)", r.optional(depth-1), r.text(0))
	case 7:
		return r.pick("pod.metadata.labels.transformList(k, v, k + v).join(',')", "hash.sha256(params.s)", "ns.labels.transformMap(k, v, v + 'x')[?'app'].orValue('')",
			"pod.metadata.labels.merge(ns.labels)[?'web'].orValue('none')", "container.args.transformMapEntry(i, a, {a: string(i)})[?'web'].orValue('none')")
	case 0:
		return fmt.Sprintf("%s[?%s].orValue(%s)", r.mapOf(), r.text(0), r.text(depth-1))
	case 1:
		return fmt.Sprintf("%s[%s]", r.mapOf(), r.text(0))
	case 2:
		return fmt.Sprintf("(%s ? %s : %s)", r.bool(depth-1), r.text(depth-1), r.text(depth-1))
	case 3:
		return fmt.Sprintf("(%s + %s)", r.text(depth-1), r.text(depth-1))
	case 4:
		return fmt.Sprintf("string(%s)", r.pick(r.text(depth-1), r.int(depth-1), r.bool(depth-1), "params.n"))
	case 5:
		return r.mapOf() + r.pick(".app", ".other")
	case 6:
		return r.pick("pod.?metadata.?labels[?'app'].orValue('')", "pod.spec.?securityContext.?seccompProfile.?type.orValue('none')",
			"container.?workingDir.orValue(ns.name)", "pod.?spec.?nodeSelector[?'app'].orValue('x')")
	}
	return r.text(0)
}

// optional returns an expression for a string that may be missing.
func (r expressions) optional(depth int) string {
	switch {
	case depth <= 0 || r.IntN(4) == 0:
		return r.pick("params.?o", "params.?a", "ns.labels[?'app']", "pod.metadata.labels[?'web']", "optional.none()")
	case r.IntN(3) == 0:
		return fmt.Sprintf("(%s ? %s : %s)", r.bool(depth-1), r.optional(depth-1), r.optional(depth-1))
	}
	return fmt.Sprintf("when(%s, %s)", r.bool(depth-1), r.text(depth-1))
}

// mapOf returns an expression for a map of strings.
func (r expressions) mapOf() string {
	return r.pick("pod.metadata.labels", "pod.metadata.annotations", "pod.spec.nodeSelector", "ns.labels", "ns.annotations", "serviceAccount.labels", "serviceAccount.annotations")
}

func (r expressions) int(depth int) string {
	switch {
	case depth > 0 && r.IntN(4) == 0:
		return fmt.Sprintf("(%s ? %s : %s)", r.bool(depth-1), r.int(depth-1), r.int(depth-1))
	case depth > 0 && r.IntN(2) == 0:
		return fmt.Sprintf("size(%s)", r.pick(r.text(depth-1), "pod.spec.containers", "pod.spec.volumes", "container.args", "container.ports"))
	}
	return r.pick("0", "3", "-1", "container.args.indexOf('web')", "[params.i, 5].max()", "pod.spec.containers.map(c, size(c.args)).sum()", "params.i", "j", "size(k.args)", "pod.spec.terminationGracePeriodSeconds", "pod.spec.priority")
}

func (r expressions) bool(depth int) string {
	if depth == 0 {
		return r.pick("true", "false", "params.b", "params.?o.hasValue()", "has(params.a)", "request.dryRun", "pod.spec.hostNetwork", "has(pod.spec.runtimeClassName)", "has(pod.spec.securityContext.fsGroup)",
			"has(pod.metadata.labels.app)", "has(ns.labels.app)", "has(container.image)", "has(container.resources.limits)")
	}
	text, other, number := r.text(depth-1), r.text(depth-1), r.int(depth-1)
	compare := r.pick("==", "!=", "<", "<=", ">", ">=")
	switch r.IntN(15) {
	case 13:
		return fmt.Sprintf("%s.%s(k, v, v == %s || k == %s)", r.mapOf(), r.pick("exists", "all", "existsOne"), r.text(0), r.text(0))
	case 0:
		return fmt.Sprintf("(%s && %s)", r.bool(depth-1), r.bool(depth-1))
	case 1:
		return fmt.Sprintf("(%s || %s)", r.bool(depth-1), r.bool(depth-1))
	case 2:
		return fmt.Sprintf("!(%s)", r.bool(depth-1))
	case 3:
		return fmt.Sprintf("(%s %s %s)", text, compare, other)
	case 4:
		return fmt.Sprintf("(%s %s %s)", number, compare, r.int(depth-1))
	case 5:
		return fmt.Sprintf("(%s %s %s)", r.bool(depth-1), r.pick("==", "!="), r.bool(depth-1))
	case 6:
		return fmt.Sprintf("(%s in ['web', 'app', ''])", text)
	case 7:
		return fmt.Sprintf("(%s in %s)", text, r.pick(r.mapOf(), "container.args", "container.command"))
	case 8:
		return fmt.Sprintf("%s.%s(%s)", text, r.pick("startsWith", "endsWith", "contains"), other)
	case 9:
		return fmt.Sprintf("%s.matches('^[a-z]+$')", text)
	case 10:
		return fmt.Sprintf("pod.spec.containers.%s(c, %s)", r.pick("exists", "all"), strings.ReplaceAll(r.bool(depth-1), "container.", "c."))
	case 11:
		return fmt.Sprintf("container.args.%s(pod, pod == %s)", r.pick("exists", "all"), r.pick("'web'", "params.s", "ns.name", "w"))
	case 12:
		return r.pick(fmt.Sprintf("%s[?%s].hasValue()", r.mapOf(), r.text(0)), r.optional(depth)+".hasValue()")
	}
	return fmt.Sprintf("(%s ? %s : %s)", r.bool(depth-1), r.bool(depth-1), r.bool(depth-1))
}

// value returns any JSON, mostly a value that is usual for the place.
func (r expressions) value(usual string) string {
	if r.IntN(8) > 0 {
		return usual
	}
	return r.pick("null", "true", "false", "7", "-1.5", `""`, `"web"`, `"\u00e4\"\\"`, "[]", `["web","x"]`, `{}`, `{"app":"web"}`, `{"app":7}`,
		`{"name":"app","args":["web"]}`, `[{"name":"app"},null]`, `"`+strings.Repeat("x", 2000)+`"`, `["`+strings.Repeat("x", values.MaxText+1)+`"]`)
}

func (r expressions) container() string {
	return r.value(fmt.Sprintf(`{"name":%s,"image":%s,"args":%s,"ports":%s,"resources":%s,"imagePullPolicy":%s}`,
		r.value(`"app"`), r.value(`"registry.example/web:1"`), r.value(`["web","app"]`), r.value(`[{"containerPort":80}]`), r.value(`{"limits":{"cpu":"1"}}`), r.value(`"Always"`)))
}

func (r expressions) pod() string {
	var spec []string
	for _, field := range []string{
		`"containers":` + r.value("["+r.container()+","+r.container()+"]"), `"volumes":` + r.value("[]"), `"nodeSelector":` + r.value(`{"app":"web"}`),
		`"hostNetwork":` + r.value("true"), `"runtimeClassName":` + r.value(`"gvisor"`), `"securityContext":` + r.value(`{"fsGroup":1,"seccompProfile":{"type":"Localhost"}}`),
		`"terminationGracePeriodSeconds":` + r.value("30"), `"priority":` + r.value("0"), `"os":` + r.value(`{"name":"linux"}`), `"serviceAccountName":` + r.value(`"default"`),
	} {
		if r.IntN(4) > 0 {
			spec = append(spec, field)
		}
	}
	labels := r.value(`{"app":` + r.value(`"web"`) + `,"web":"app"}`)
	metadata := r.value(fmt.Sprintf(`{"namespace":"shop","labels":%s,"annotations":%s}`, labels, r.value(`{"app":"web","app":"twice"}`)))
	return fmt.Sprintf(`{"metadata":%s,"spec":%s}`, metadata, r.value("{"+strings.Join(spec, ",")+"}"))
}

// compareDirect compares an expression's direct function with CEL. It reports whether the
// expression compiles, and whether a direct function returned a value to compare.
func compareDirect(t *testing.T, c *Compiler, source, pod, container string) (compiled, compared bool) {
	t.Helper()
	p, err := c.compileExpression(c.container, source, false)
	if err != nil {
		return false, false
	}
	in := newTestInput(t, pod, container)
	if p.fastpath.text == nil {
		return true, false
	}
	text, ok := p.fastpath.text(in)
	if !ok {
		return true, false
	}
	var n jsontree.Node
	if !p.fastpath.node(in, &n) {
		t.Fatalf("%s gives the string %q, and no value, for\n%s\n%s", source, text, pod, container)
	}
	out, err := p.evalCEL(newTestInput(t, pod, container))
	if err != nil {
		t.Fatalf("%s gives %q; by CEL %v, for\n%s\n%s", source, text, err, pod, container)
	}
	want, err := values.ToJSON(out)
	if err != nil || want.String() != n.String() || values.TextOf(out.ConvertToType(types.StringType)) != text {
		t.Fatalf("%s gives %s; by CEL %s (%v), for\n%s\n%s", source, n.String(), want.String(), err, pod, container)
	}
	return true, true
}

// TestDirect checks that direct functions return the same values as CEL, for any pod. A failed run
// prints its seed.
func TestDirect(t *testing.T) {
	t.Parallel()
	c := loopingCompiler(t)
	const seeds = 1500
	functions, compared := 0, 0
	for seed := range uint64(seeds) {
		r := expressions{rand.New(rand.NewPCG(seed, 1))}
		source := r.pick(r.bool(3), r.text(3), r.int(2))
		for range 8 {
			compiled, same := compareDirect(t, c, source, r.pod(), r.container())
			if compiled {
				functions++
			}
			if same {
				compared++
			}
		}
	}
	t.Logf("%d evaluations, %d of them without CEL", functions, compared)
	if compared*4 < functions {
		t.Errorf("only %d of %d evaluations could do without CEL", compared, functions)
	}
}

// FuzzDirect is TestDirect for any expression and any pod.
func FuzzDirect(f *testing.F) {
	c := loopingCompiler(f)
	for seed := range uint64(300) {
		r := expressions{rand.New(rand.NewPCG(seed, 2))}
		f.Add(r.pick(r.bool(3), r.text(3), r.int(2)), r.pod(), r.container())
	}
	f.Fuzz(func(t *testing.T, source, pod, container string) {
		if len(source) < 1000 && len(pod) < 10_000 && len(container) < 10_000 {
			compareDirect(t, c, source, pod, container)
		}
	})
}
