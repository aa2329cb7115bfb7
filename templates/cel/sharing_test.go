// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// counted is a string that counts how often it is compared.
type counted struct {
	types.String

	comparisons *int
}

// Equal implements ref.Val.
func (c counted) Equal(ref.Val) ref.Val { *c.comparisons++; return types.True }

// sharing makes expressions that compare values with very many references to the string w, in lists,
// maps and optional values.
type sharing struct{ *rand.Rand }

func (r sharing) pick(all ...string) string { return all[r.IntN(len(all))] }

// comparison returns an expression of type bool.
func (r sharing) comparison() string {
	last, binds, levels := "w", 0, 0
	var b strings.Builder
	for range 2 + r.IntN(7) {
		next := r.pick("optional.of(%s)", "optional.of(%s)", "optional.of(%s).or(optional.none())", "(true ? %s : %[1]s)", "optional.of(%s).value()", "optional.of(optional.of(%s))")
		if levels < 3 && r.IntN(2) == 0 {
			levels++
			next = r.pick("lists.range(100).map(i, %s)", "lists.range(100).map(i, optional.of(%s))", "{'k': %s}", "[%s, %[1]s].map(x, x)", "optional.unwrap(lists.range(100).map(i, optional.of(%s)))",
				"lists.range(100).transformMap(i, x, %s)", "lists.range(100).transformMapEntry(i, x, {i: %s})", "{0: %s}.merge({1: %[1]s})", "lists.range(100).transformList(i, x, %s)")
		}
		fmt.Fprintf(&b, "cel.bind(v%d, %s, ", binds, fmt.Sprintf(next, last))
		last = fmt.Sprintf("v%d", binds)
		binds++
	}
	ends := []string{"%s == %[1]s", "%s != %[1]s", "optional.of(%s) == optional.of(%[1]s)"}
	if levels < 3 {
		ends = append(ends, "%s in [%[1]s]", "[%s, %[1]s].distinct().size() == 1", "sets.contains([%s], [%[1]s])", "[%s, %[1]s] == [%[1]s, %[1]s]", "[%s, %[1]s].indexOf(%[1]s) == 0", "[%s, %[1]s].lastIndexOf(%[1]s) == 1", "sets.equivalent([optional.of(%s)], [optional.of(%[1]s)])")
	}
	return b.String() + fmt.Sprintf(r.pick(ends...), last) + strings.Repeat(")", binds)
}

// checkSharing counts the comparisons of an expression. They are at most a multiple of its cost.
func checkSharing(t *testing.T, c *Compiler, source string) (compiled, stopped bool) {
	t.Helper()
	p, err := c.compileExpression(c.container, source, false)
	if err != nil {
		return false, false
	}
	in, n := newTestInput(t, "{}", "{}"), 0
	in.loops[0].value = counted{"web", &n}
	_, err = p.evalCEL(in)
	if n > 2*int(in.spent) { //nolint:gosec // it is at most MaxCost
		t.Errorf("%s costs %d and makes %d comparisons (%v)", source, in.spent, n, err)
	}
	_, stopped = errors.AsType[interpreter.EvalCancelledError](err)
	return true, stopped
}

// TestSharing checks that the cost of a comparison contains every part of its arguments, whatever
// they are wrapped in. A failed run prints the expression.
func TestSharing(t *testing.T) {
	t.Parallel()
	c := loopingCompiler(t)
	compiles, stops := 0, 0
	const seeds = 250
	for seed := range uint64(seeds) {
		compiled, stopped := checkSharing(t, c, sharing{rand.New(rand.NewPCG(seed, 1))}.comparison())
		if compiled {
			compiles++
		}
		if stopped {
			stops++
		}
	}
	t.Logf("%d of %d expressions compile, %d are stopped", compiles, seeds, stops)
	if compiles < seeds/2 || stops < seeds/20 {
		t.Errorf("only %d of %d expressions compile, and %d are stopped", compiles, seeds, stops)
	}
}

// FuzzSharing is TestSharing for any seed.
func FuzzSharing(f *testing.F) {
	c := loopingCompiler(f)
	f.Add(uint64(0))
	f.Fuzz(func(t *testing.T, seed uint64) {
		checkSharing(t, c, sharing{rand.New(rand.NewPCG(seed, 2))}.comparison())
	})
}

// TestStopped checks that the cost limit stops expressions that read the same large value many times.
func TestStopped(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	const (
		nested = `cel.bind(a, lists.range(300), cel.bind(b, a.map(x, a), cel.bind(c, a.map(x, b), %s)))`
		long   = `cel.bind(s, 'TEXT', cel.bind(u, s + s + s + s, lists.range(5000).exists(i, %s)))`
	)
	for _, source := range []string{
		fmt.Sprintf(nested, `optional.of(c) == optional.of(c)`),
		fmt.Sprintf(nested, `optional.of(optional.of(c)) != optional.of(optional.of(c))`),
		fmt.Sprintf(nested, `a.map(x, optional.of(b)) == a.map(x, optional.of(b))`),
		fmt.Sprintf(nested, `optional.of(b) in a.map(x, optional.of(b))`),
		fmt.Sprintf(nested, `a.map(x, optional.of(b)).distinct() == []`),
		`lists.range(500).map(x, pod.spec.containers[0]) == lists.range(500).map(x, pod.spec.containers[0])`,
		`lists.range(500).map(x, optional.of(pod.spec.containers[0])) == lists.range(500).map(x, optional.of(pod.spec.containers[0]))`,
		`pod.spec.containers[1] in lists.range(500).map(x, pod.spec.containers[0])`,
		`cel.bind(l, lists.range(2000).map(i, optional.of(i)), lists.range(1000).exists(i, optional.unwrap(l) == []))`,
		`cel.bind(l, lists.range(2000).map(i, optional.of(i)), lists.range(1000).exists(i, l.unwrapOpt().size() == 0))`,
		`lists.range(5000).exists(i, pod.metadata.annotations.size() == 0)`,
		`lists.range(5000).exists(i, size(pod.metadata.annotations) == 0)`,
		fmt.Sprintf(long, `u.size() == 0`),
		fmt.Sprintf(long, `size(u) == 0`),
		fmt.Sprintf(long, `bool(u)`),
		fmt.Sprintf(long, `int(u) == 0`),
		fmt.Sprintf(long, `uint(u) == 0u`),
		fmt.Sprintf(long, `double(u) == 0.0`),
		fmt.Sprintf(long, `string(u) == ''`),
		fmt.Sprintf(long, `duration(u) == duration(u)`),
		fmt.Sprintf(long, `timestamp(u) == timestamp(u)`),
		`cel.bind(a, lists.range(100), cel.bind(b, a.map(x, a), a.exists(i, !sets.contains([b], [b]))))`,
		`cel.bind(a, lists.range(100), cel.bind(b, a.map(x, optional.of(a)), a.exists(i, !sets.equivalent([b], [b]))))`,
		`cel.bind(u, url('https://x/?TEXT'), lists.range(5000).exists(i, u != u))`,
		`cel.bind(l, lists.range(2000), lists.range(1000).exists(i, l.indexOf(-1) == 0))`,
		`cel.bind(l, lists.range(2000), lists.range(1000).exists(i, l.lastIndexOf(-1) == 0))`,
		`cel.bind(l, lists.range(2000), lists.range(1000).exists(i, l.sum() == 0))`,
		`cel.bind(l, lists.range(2000), lists.range(1000).exists(i, l.min() == 1))`,
		`cel.bind(l, lists.range(2000), lists.range(1000).exists(i, l.max() == 0))`,
		`cel.bind(l, lists.range(2000), lists.range(1000).exists(i, !l.isSorted()))`,
		`lists.range(5000).exists(i, pod.metadata.annotations.merge({'a': 'b'}) == {})`,
		`cel.bind(m, lists.range(1000).transformMap(i, x, x), lists.range(1000).exists(i, {-1: 0}.merge(m).size() == 0))`,
		`lists.range(5000).exists(i, pod.metadata.annotations.transformMap(k, v, v).size() == 0)`,
		`lists.range(5000).exists(i, !pod.metadata.annotations.all(k, v, v == 'x'))`,
		fmt.Sprintf(long, `hash.sha256(u) == ''`),
		fmt.Sprintf(long, `[u].transformMapEntry(j, x, {x: j}).size() == 0`),
		fmt.Sprintf(long, `{u: 1}.transformMap(k, v, v).size() == 0`),
		fmt.Sprintf(long, `{u: 1}.merge({u: 2}).size() == 0`),
	} {
		p, err := c.CompileBool(c.pod, strings.ReplaceAll(source, "TEXT", strings.Repeat("x", 15_000)), 0)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		_, err = p.evalCEL(&Input{Pod: largePod(1000)})
		if _, stopped := errors.AsType[interpreter.EvalCancelledError](err); !stopped {
			t.Errorf("%s is not stopped (%.100v)", source, err)
		}
	}
}

// largePod returns a pod with n annotations, and with n variables in each of two containers.
func largePod(n int) *jsontree.Node {
	annotations, env := jsontree.Members(), jsontree.Items()
	for i := range n {
		name := fmt.Sprintf("example.com/%04d", i)
		annotations.Set(name, jsontree.Text("x"))
		variable := jsontree.Members()
		variable.Set("name", jsontree.Text(name))
		env.Append(variable)
	}
	container, metadata, spec, pod := jsontree.Members(), jsontree.Members(), jsontree.Members(), jsontree.Members()
	container.Set("env", env)
	metadata.Set("annotations", annotations)
	spec.Set("containers", jsontree.Items(container, container))
	pod.Set("metadata", metadata)
	pod.Set("spec", spec)
	return &pod
}

// TestStopsBefore checks that a comparison that would cost too much does not begin.
func TestStopsBefore(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	for _, source := range []string{
		`lists.range(500).map(x, pod.spec.containers[0]) == lists.range(500).map(x, pod.spec.containers[0])`,
		`cel.bind(a, lists.range(400), optional.of(a.map(x, optional.of(a))) == optional.of(a.map(x, optional.of(a))))`,
	} {
		p, err := c.CompileBool(c.pod, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.evalCEL(&Input{Pod: largePod(1000)}); err == nil || !strings.Contains(err.Error(), "== would cost more than 100000") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestEarlyEnd checks that a loop that ends at its first value makes few allocations for a long list or
// map.
func TestEarlyEnd(t *testing.T) {
	c := newTestCompiler(t)
	for _, source := range []string{
		`pod.metadata.annotations.exists(k, k != '')`,
		`pod.spec.containers[0].env.exists(e, e.name != '')`,
		`pod.metadata.annotations.exists(k, v, k != v)`,
		`pod.spec.containers[0].env.exists(i, e, e.name != '')`,
	} {
		p, err := c.CompileBool(c.pod, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		allocations := func(n int) float64 {
			pod := largePod(n)
			return testing.AllocsPerRun(5, func() { _, _ = p.evalCEL(&Input{Pod: pod}) })
		}
		if one, all := allocations(1), allocations(1000); all > one+20 {
			t.Errorf("%s makes %v allocations for 1000 and %v for one", source, all, one)
		}
	}
}

// TestFailuresCount checks that a template's expressions cost something if they fail. A condition can
// handle the errors of many variables.
func TestFailuresCount(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	p, err := c.CompileBool(c.pod, `lists.range(1000).map(i, string(i)).size() > 0 && {'a': true}['b' + string(params.i)]`, 0)
	if err != nil {
		t.Fatal(err)
	}
	in := newTestInput(t, "{}", "{}")
	if _, err := p.evalCEL(in); err == nil || in.spent < 1000 {
		t.Errorf("it costs %d (%v)", in.spent, err)
	}
}

// TestMessages checks that expressions cannot make messages of protobuf, which copy what they contain.
func TestMessages(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	for _, source := range []string{`google.protobuf.ListValue{values: [1]} == [1]`, `google.protobuf.Int64Value{value: 1} == 1`, `Container{name: 'x'}.name == 'x'`} {
		if _, err := c.CompileBool(c.pod, source, 0); err == nil || !strings.Contains(err.Error(), "is a message, which expressions cannot make") {
			t.Errorf("%s: %v", source, err)
		}
	}
}
