// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// greedy are expressions with a size N. Each has a function with a large argument.
var greedy = []string{
	`lists.range(N).size() > 0`,
	`lists.range(N).sort().size() > 0`,
	`lists.range(N).reverse().size() > 0`,
	`lists.range(N).slice(0, N).size() > 0`,
	`lists.range(N).distinct().size() > 0`,
	`lists.range(N).map(i, string(i)).sort().size() > 0`,
	`lists.range(N).sortBy(i, -i).size() > 0`,
	`lists.range(N).map(i, [[i]]).flatten().flatten().size() > 0`,
	`math.greatest(lists.range(N)) >= 0`,
	`sets.contains(lists.range(N), lists.range(N))`,
	`sets.equivalent(lists.range(N), lists.range(N))`,
	`sets.intersects(lists.range(N), lists.range(N).map(i, i + N))`,
	`json.marshal(lists.range(N)) != ''`,
	`json.marshal({'a': TEXT}) != ''`,
	`json.marshal({'a': 1, 'b': lists.range(N).map(i, {'n': i, 't': ''})}) != ''`,
	`base64.encode(bytes(base64.encode(bytes(base64.encode(bytes(TEXT)))))) != ''`,
	`string(base64.decode(base64.encode(bytes(TEXT)))) != ''`,
	`TEXT.find('x*x*y') == ''`,
	`TEXT.findAll('x').size() > 0`,
	`TEXT.findAll('x', N).size() > 0`,
	`regex.extract(TEXT, '(x+x+)+y').hasValue()`,
	`regex.extractAll(TEXT, 'x').size() > 0`,
	`regex.replace(TEXT, 'x', 'yy') != ''`,
	`lists.range(N).exists(i, 'x'.find('(x{1,200})y') == 'y')`,
	`TEXT.indexOf(TEXT + 'y') > 0`,
	`TEXT.lastIndexOf(TEXT.replace('x', 'z', 1)) > 0`,
	`isURL('https://x/?' + TEXT)`,
	`url('https://x/?' + TEXT.replace('x', 'a&')).getQuery().size() > 0`,
	`isQuantity(TEXT)`,
	`isIP(TEXT)`,
	`isCIDR(TEXT)`,
	`ip.isCanonical('::1' + TEXT)`,
	`isSemver(TEXT)`,
	`isSemver('1.2.3-' + TEXT)`,
	`semver('1.2.3-' + TEXT.replace('x', 'x.')).isLessThan(semver('1.2.3-' + TEXT.replace('x', 'x.')))`,
	`cel.bind(a, TEXT, a + a) != ''`,
	`lists.range(N).sum() >= 0`,
	`lists.range(N).max() >= 0`,
	`lists.range(N).map(i, string(i)).min() != ''`,
	`lists.range(N).isSorted()`,
	`lists.range(N).indexOf(-1) == -1`,
	`lists.range(N).lastIndexOf(-1) == -1`,
	`[TEXT, TEXT].indexOf(TEXT + 'y') == -1`,
	`lists.range(N).transformMap(i, x, x).size() > 0`,
	`lists.range(N).transformMapEntry(i, x, {string(x): i}).size() > 0`,
	`lists.range(N).transformMap(i, x, x).transformMap(k, v, v + 1).size() > 0`,
	`lists.range(N).transformMap(i, x, x).transformList(k, v, k + v).size() > 0`,
	`lists.range(N).transformList(i, x, i > 0, x).size() > 0`,
	`lists.range(N).all(i, x, i == x)`,
	`lists.range(N).transformMap(i, x, x).exists(k, v, k != v) || true`,
	`lists.range(N).transformMap(i, x, x).merge(lists.range(N).transformMap(i, x, -x)).size() > 0`,
	`{TEXT: 1}.merge({TEXT + 'y': 2}).size() == 2`,
	`hash.sha256(TEXT) != ''`,
}

// grown is an expression of size n.
func grown(source string, n int) string {
	return strings.NewReplacer("TEXT", "'"+strings.Repeat("x", n)+"'", "N", fmt.Sprint(n)).Replace(source)
}

// TestFunctionCosts checks that each function at its bound takes little time and memory, whatever the size, and
// that a function on a larger value costs more.
func TestFunctionCosts(t *testing.T) {
	c := newTestCompiler(t)
	for _, source := range greedy {
		var before uint64
		for _, n := range []int{10, 80, 640, 5_000, 40_000, 320_000, 3_000_000} {
			cost, err := bounds(t, c, grown(source, n), source, n)
			if n <= 640 && before > 0 && err == nil && cost < before*2 {
				t.Errorf("%s: 8 times as much costs only %d instead of %d", source, cost, before)
			}
			if n == 3_000_000 && err == nil && !strings.HasPrefix(source, "is") {
				t.Errorf("%s: no limit stops %d", source, n)
			}
			before = cost
			if len(grown(source, n)) > 300_000 {
				break // longer than any template
			}
		}
	}
}

// TestUsualCosts checks that usual work with lists of a usual size is far from the limit.
func TestUsualCosts(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	for source, most := range map[string]uint64{
		`lists.range(1000).map(i, i + 1).filter(i, i > 1).size() > 0`:                    35_000,
		`lists.range(1000).map(i, 'name-' + string(i)).sort().join(',') != ''`:           40_000,
		`lists.range(100).map(i, 'name-' + string(i)).distinct().size() > 0`:             15_000,
		`lists.range(100).map(i, [i]).flatten().size() > 0`:                              5_000,
		`json.marshal(lists.range(100).map(i, {'name': string(i), 'value': 'x'})) != ''`: 8_000,
	} {
		if cost, err := bounds(t, c, source, source, 0); err != nil || cost > most {
			t.Errorf("%s costs %d: %v", source, cost, err)
		}
	}
}

// explosive are expressions whose values contain the same value very many times.
var explosive = []string{
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, a), cel.bind(c, a.map(i, b), c == a.map(i, b))))`,
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, a), cel.bind(c, a.map(i, b), a.map(i, b) != c)))`,
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, a), b in a.map(i, a.map(i, a))))`,
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, a), sets.contains(a.map(i, b), a.map(i, b))))`,
	`cel.bind(a, lists.range(300), a.map(i, a.map(j, a)).flatten().flatten().size() > 0)`,
	`cel.bind(a, lists.range(300), a.map(i, a).flatten().distinct().size() > 0)`,
	`cel.bind(a, lists.range(300), json.marshal(a.map(i, a)) != '')`,
	`cel.bind(a, lists.range(300), a.map(i, a).distinct().size() > 0)`,
	`cel.bind(a, 'x', ` + strings.Repeat(`cel.bind(a, a + a, `, 60) + `a != ''` + strings.Repeat(`)`, 61),
	`cel.bind(a, [1], ` + strings.Repeat(`cel.bind(a, a + a, `, 60) + `a.size() > 0` + strings.Repeat(`)`, 61),
	`cel.bind(a, [1], ` + strings.Repeat(`cel.bind(a, a + a, `, 60) + `a == a` + strings.Repeat(`)`, 61),
	`[[1]]` + strings.Repeat(`.map(a, a + a)`, 60) + `.size() > 0`,
	`cel.bind(a, 'x', ` + strings.Repeat(`cel.bind(a, base64.encode(bytes(a)), `, 90) + `a != ''` + strings.Repeat(`)`, 91),
	`cel.bind(a, 'x', ` + strings.Repeat(`cel.bind(a, json.marshal(a), `, 90) + `a != ''` + strings.Repeat(`)`, 91),
	`cel.bind(a, {'x': 1, 'y': ''}, ` + strings.Repeat(`cel.bind(a, {'p': a, 'q': [a]}, `, 60) + `json.marshal(a) != ''` + strings.Repeat(`)`, 61),
	`cel.bind(a, {'x': 1, 'y': ''}, ` + strings.Repeat(`cel.bind(a, {'p': [a], 'q': a, 'r': 1}, `, 20) + `json.marshal([a, 'x', [a, 1]]) != ''` + strings.Repeat(`)`, 21),
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, {'k': a, 'l': 1}), json.marshal(a.map(i, {'p': b, 'x': 1})) != ''))`,
	`regex.replace('` + strings.Repeat("x", 16000) + `', '', '` + strings.Repeat("y", 16000) + `') != ''`,
	`regex.replace('` + strings.Repeat("x", 16000) + `', '.*', '` + strings.Repeat(`\\0`, 5000) + `') != ''`,
	`lists.range(500).map(i, lists.range(500)).exists(l, l.distinct().size() > 900)`,
	strings.Repeat(`lists.range(90000).sort() == [] || `, 300) + `true`,
	`quantity('1e2147483647').sign() > 0`,
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, a), a.map(i, b).indexOf(b) == 0))`,
	`cel.bind(a, lists.range(300), cel.bind(b, a.map(i, a), cel.bind(c, a.transformMap(i, x, b), c == a.transformMap(i, x, b))))`,
	`cel.bind(a, lists.range(300), cel.bind(b, a.transformMap(i, x, a), b.transformMap(i, x, b) == b.transformMap(i, x, b)))`,
	`cel.bind(a, lists.range(300), json.marshal(a.transformMap(i, x, a)) != '')`,
	`cel.bind(a, lists.range(300), json.marshal(a.transformMap(i, x, a).merge({-1: a})) != '')`,
	`lists.range(300).transformMap(i, x, lists.range(300).transformMap(j, y, y)).size() > 900`,
	`cel.bind(a, lists.range(400).transformMap(i, x, x), lists.range(400).exists(i, a.merge({-1: 0}).size() == 0))`,
	`lists.range(3000).exists(i, hash.sha256('` + strings.Repeat("x", 16000) + `') == '')`,
}

// TestSharedValues checks that an evaluation is bounded if a value contains another one many times. No
// expression can handle the error and go on.
func TestSharedValues(t *testing.T) {
	c := newTestCompiler(t)
	for _, source := range explosive {
		name := source[:min(len(source), 100)]
		if _, err := bounds(t, c, source, name, 0); err == nil {
			t.Errorf("%s has a value", name)
		} else if strings.Contains(err.Error(), "internal error") {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%s: %s", name, err.Error()[max(len(err.Error())-100, 0):])
		}
	}
}

// bounds evaluates an expression and checks its time and memory.
func bounds(t *testing.T, c *Compiler, source, name string, n int) (cost uint64, err error) {
	t.Helper()
	p, err := c.CompileBool(c.pod, source, 0)
	if err != nil {
		return 0, err
	}
	in := &Input{Pod: &jsontree.Node{}}
	var m1, m2 runtime.MemStats
	runtime.ReadMemStats(&m1)
	before := cpu.Used(t)
	_, err = p.evalCEL(in)
	took := cpu.Used(t) - before
	runtime.ReadMemStats(&m2)
	const most, space = 400 * time.Millisecond, 100 << 20
	if allocated := m2.TotalAlloc - m1.TotalAlloc; took > most || allocated > space {
		t.Errorf("%s with %d takes %v and %d MB (%v)", name, n, took, allocated>>20, err)
	}
	return in.spent, err
}
