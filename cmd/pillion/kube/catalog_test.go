// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
)

// small are limits that few templates exceed: of few namespaces, or of so many that no share would be left for each.
func small(few bool) Limits {
	memory := "2Mi"
	if few {
		memory = "400Ki"
	}
	return Limits{Count: 4, Size: mustParseQuantity("4Ki"), Memory: mustParseQuantity(memory)}
}

func (c *Catalog) used() string {
	return fmt.Sprint(slices.SortedFunc(slices.Values(c.Used()), CompareNames))
}

func newCatalog(few bool) *Catalog {
	return NewCatalog(small(few), nil, false, func([]types.NamespacedName) {})
}

// anyEntry is a random template of one of a few namespaces, or of many.
func anyEntry(random *rand.Rand, i int, few bool) *Entry {
	namespace := fmt.Sprint("n", random.IntN(200))
	if few {
		namespace = []string{"", "a", "b", "c", "d", "e"}[random.IntN(6)]
	}
	e := &Entry{
		Namespace: namespace, Name: fmt.Sprint("t", random.IntN(8)),
		UID: types.UID(fmt.Sprint(random.IntN(2))), Generation: int64(i), Created: time.Unix(int64(random.IntN(5)), 0),
	}
	size := random.IntN(1500)
	if random.IntN(20) == 0 {
		size = templates.MaxObject
	}
	e.setContent(templateText(e.Kind(), e.Namespace, e.Name, []byte(`"`+strings.Repeat("x", size)+`"`)))
	return e
}

// TestCatalogOrder checks that which templates are used depends only on which there are: not on the order in which they
// arrive, and not on what was there before. So all replicas agree. It also checks that what the catalog reports as changed
// is all that changed, and that it has the content of no other template than of those that are used.
func TestCatalogOrder(t *testing.T) {
	for seed := range uint64(size.Choose(t, 100, 3000)) {
		random, few, n := rand.New(rand.NewPCG(seed, 2)), seed%4 > 0, 120
		if !few {
			n = 600
		}
		known := map[types.NamespacedName]bool{} // which are used, by what was reported
		var c *Catalog
		c = NewCatalog(small(few), nil, false, func(names []types.NamespacedName) {
			for _, name := range names {
				_, used := c.Get(name)
				known[name] = used
				if !used {
					delete(known, name)
				}
			}
		})
		now := map[types.NamespacedName]*Entry{}
		for i := range n {
			e := anyEntry(random, i, few)
			switch random.IntN(n / 15) {
			case 0, 1:
				delete(now, e.Key())
				c.Drop(e.Key())
			case 2:
				for name := range now {
					if (name.Namespace == "") == (e.Namespace == "") && random.IntN(2) == 0 {
						delete(now, name)
					}
				}
				if e.Namespace == "" {
					now[e.Key()] = e
				}
				var all []*Entry
				for name, of := range now {
					if (name.Namespace == "") == (e.Namespace == "") {
						again := *of
						again.used, again.text = random.IntN(2) == 0, nil
						all = append(all, &again)
						now[name] = &again
					}
				}
				c.replaceKind(e.Namespace == "", all)
			default:
				now[e.Key()] = e
				c.Put(e)
			}
		}
		fresh := newCatalog(few)
		for _, e := range now {
			again := *e
			again.text = nil
			fresh.Put(&again)
		}
		reported := fmt.Sprint(slices.SortedFunc(maps.Keys(known), CompareNames))
		if c.used() != fresh.used() || c.used() != reported {
			t.Fatalf("seed %d: used are\n%s, by the final content\n%s, and reported were\n%s", seed, c.used(), fresh.used(), reported)
		}
		held := 0
		for _, e := range c.Entries() {
			held += len(e.text)
			if !e.used && e.text != nil {
				t.Fatalf("seed %d: the catalog has the content of %s", seed, e.Key())
			}
		}
		if held != c.held {
			t.Fatalf("seed %d: %d bytes are held, it counts %d", seed, held, c.held)
		}
	}
}

// TestCatalogLimits checks that the templates of namespaces take no more memory than the limit, and those of one no more
// than an eighth. A namespace that takes no more than the reserve is not limited, if that is enough for the reserves of all.
func TestCatalogLimits(t *testing.T) {
	crowded, enough := 0, 0
	for seed := range uint64(size.Choose(t, 200, 5000)) {
		random, few := rand.New(rand.NewPCG(seed, 3)), seed%2 == 0
		c := newCatalog(few)
		n := random.IntN(60)
		if !few {
			n *= 10
		}
		for i := range n {
			c.Put(anyEntry(random, i, few))
		}
		limit, used := c.limits.Memory.Value(), int64(0)
		for namespace, s := range c.shelves {
			if namespace == "" {
				continue
			}
			of := memoryOf(s.byAge[:s.used])
			if s.used > c.limits.Count || of > limit/8 {
				t.Fatalf("seed %d: the namespace %s has %d, which take %d of %d", seed, namespace, s.used, of, limit)
			}
			used += of
			switch {
			case s.memory > c.limits.namespaceReserve() || s.used == s.fit:
			case c.total[0] > limit/2:
				crowded++
			default:
				t.Fatalf("seed %d: the namespace %s takes %d, and only %d of %d are used", seed, namespace, s.memory, s.used, s.fit)
			}
		}
		if used > limit {
			t.Fatalf("seed %d: the templates take %d, of %d", seed, used, limit)
		}
		if c.order == nil {
			enough++
		}
	}
	if crowded == 0 || enough == 0 {
		t.Errorf("there was too little memory for %d namespaces, and enough for all %d times", crowded, enough)
	}
}

func memoryOf(all []*Entry) (sum int64) {
	for _, e := range all {
		sum += int64(e.memory)
	}
	return sum
}

// TestCatalogDisplaces checks that a new template never takes the place of an older one, of whatever namespace, and that
// a change that is admitted never takes the place of any. What tenants do never concerns the templates of the cluster.
func TestCatalogDisplaces(t *testing.T) {
	unchecked, displaced := 0, 0
	for seed := range uint64(size.Choose(t, 60, 2000)) {
		random, few := rand.New(rand.NewPCG(seed, 5)), seed%2 == 0
		c := newCatalog(few)
		c.Put(&Entry{Name: "shared", Created: time.Unix(1e6, 0), memory: 1 << 30})
		for i := range 300 {
			e := anyEntry(random, i, few)
			if e.Namespace == "" || e.Size > templates.MaxObject {
				continue
			}
			e.Created = time.Unix(int64(1000+i), 0)
			old, _ := c.Get(e.Key())
			if old != nil {
				e.Created = old.Created
			}
			before := c.Used()
			admitted := c.Admits(e.Key(), slices.Clone(e.text)) == ""
			if !admitted && random.IntN(3) > 0 {
				continue
			}
			if !admitted {
				unchecked++
			}
			c.Put(e)
			for _, name := range before {
				switch _, used := c.Get(name); {
				case used:
				case name.Namespace == "" || old == nil:
					t.Fatalf("seed %d: %s, which is new, displaces %s", seed, e.Key(), name)
				case admitted && (e.Size > old.Size || e.memory > old.memory): // otherwise, it may leave room for older ones
					t.Fatalf("seed %d: %s displaces %s, and is admitted", seed, e.Key(), name)
				default:
					displaced++
				}
			}
		}
	}
	if unchecked == 0 || displaced == 0 {
		t.Errorf("%d slipped in, and displaced %d", unchecked, displaced)
	}
}

// TestCatalogAdmits checks that a change that is admitted leaves no template unused that was used before, and that each
// change that would is rejected. A template that becomes smaller is always admitted.
func TestCatalogAdmits(t *testing.T) {
	admitted := 0
	for seed := range uint64(size.Choose(t, 500, 20000)) {
		random, few := rand.New(rand.NewPCG(seed, 4)), seed%8 > 0
		c := newCatalog(few)
		n := random.IntN(40)
		if !few {
			n *= 10
		}
		for i := range n {
			c.Put(anyEntry(random, i, few))
		}
		e := anyEntry(random, 1000, few)
		e.Created = time.Unix(1000, 0)
		old, _ := c.Get(e.Key())
		if old != nil {
			e.Created = old.Created
		}
		text := slices.Clone(e.text)
		if e.Size > templates.MaxObject {
			continue // rejected anyway
		}
		before, usedBefore := c.unused(e.Namespace), c.Used()
		why := c.Admits(e.Key(), text)
		c.Put(e)
		_, used := c.Get(e.Key())
		more := c.unused(e.Namespace) > before
		smaller := old != nil && e.Size <= old.Size && e.memory <= old.memory
		displaces := slices.ContainsFunc(usedBefore, func(name types.NamespacedName) bool {
			_, used := c.Get(name)
			return !used
		})
		if reject := !smaller && (!used || more || displaces); reject != (why != "") {
			t.Fatalf("seed %d: %s: rejected because of %q; used afterwards: %t, more are unused: %t, smaller: %t, displaces others: %t", seed, e.Key(), why, used, more, smaller, displaces)
		}
		if why == "" {
			admitted++
		}
	}
	if admitted == 0 {
		t.Error("nothing is admitted")
	}
}

func (c *Catalog) unused(namespace string) int {
	if s := c.shelves[namespace]; s != nil {
		return len(s.byAge) - s.used
	}
	return 0
}

// TestFitting checks which templates of a namespace are within its limits. One that is too large by itself does not count.
func TestFitting(t *testing.T) {
	limits := NewLimits()
	most, memory := int(limits.Size.Value()), int(limits.MostOfNamespace())
	for _, c := range []struct {
		sizes, memory []int
		want          int
	}{
		{nil, nil, 0},
		{[]int{most}, nil, 1},
		{[]int{most, 1}, nil, 1},
		{[]int{templates.MaxObject + 1, most - 1, 1, 1, 1}, nil, 3},
		{slices.Repeat([]int{1}, 2*limits.Count), nil, limits.Count},
		{[]int{1, 1, 1}, []int{memory - 1, 1, 1}, 2},
		{[]int{1}, []int{memory + 1}, 0},
	} {
		var all []*Entry
		for i, size := range c.sizes {
			e := &Entry{Size: size}
			if c.memory != nil {
				e.memory = c.memory[i]
			}
			all = append(all, e)
		}
		if got, _ := limits.countFitting(all); got != c.want {
			t.Errorf("of %v, %v, %d fit, want %d", c.sizes, c.memory, got, c.want)
		}
	}
}

// TestEntry checks what is kept of an object, and that its content is the same as that of a typed client.
func TestEntry(t *testing.T) {
	c := NewCatalog(NewLimits(), nil, true, nil)
	text := template("team-a", 7, `,"labels":{"a":"b"}`, "<x>", `,"status":{"revision":"0123456789ab"}`)
	text = strings.Replace(text, `"spec":{`, `"spec":{"replaces":"other","required":true,"rollout":{"strategy":"InPlace"},`, 1)
	e, err := c.Read([]byte(text))
	clitest.Must(t, err)
	if e.ID() != "sidecartemplate/team-a/t00007" || e.Generation != 1 || e.GetResourceVersion() != "7" || e.Replaces != "other" || !e.Required || !e.Rollout.Acts() || e.Status.Revision != "0123456789ab" {
		t.Errorf("it is %+v", e)
	}
	if want := `{"apiVersion":"pillion.dev/v1alpha1","kind":"SidecarTemplate","metadata":{"name":"t00007","namespace":"team-a"},"spec":{"replaces"`; !strings.HasPrefix(string(e.text), want) {
		t.Errorf("the content is %s", e.text)
	}
	if _, err := c.Read([]byte(`{"metadata":[]}`)); err == nil {
		t.Error("metadata is a list")
	}
}

// TestMemory checks that no template takes more memory than the estimate, and that an ordinary one takes no less than
// a quarter of it.
func TestMemory(t *testing.T) {
	n := size.Choose(t, 80, 490)
	many := func(n int, item string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(item, "#", fmt.Sprint(i)))
		}
		return strings.Join(all, ",")
	}
	container := func(fields string) string {
		return `{"pod":{"spec":{"containers":[{"name":"c","image":"i",` + fields + `}]}}}`
	}
	annotation := `"pod":{"metadata":{"annotations":{"a.example.com/b":"c"}}}`
	const matches = `"${string(pod.metadata.?name.orValue('x').matches`
	for what, spec := range map[string]string{
		"strings":               container(`"args":[` + many(10*n, `"0000#"`) + `]`),
		"env":                   container(`"env":[` + many(10*n, `{"name":"A#"}`) + `]`),
		"volumes":               `{"pod":{"spec":{"volumes":[` + many(5*n, `{"name":"a#","emptyDir":{}}`) + `]}}}`,
		"tolerations":           `{"pod":{"spec":{"tolerations":[` + many(10*n, `{"key":"a#"}`) + `]}}}`,
		"params":                `{"params":[` + many(n/2, `{"name":"a#","default":"x"}`) + `],` + annotation + `}`,
		"maps":                  `{"params":[` + many(n/2, `{"name":"a#","type":"map","default":"a=b,c=d"}`) + `],` + annotation + `}`,
		"prefixes":              `{"params":[` + many(n/2, `{"name":"a#","prefix":"a#.example.com/"}`) + `],` + annotation + `}`,
		"patterns":              `{"params":[` + many(n/2, `{"name":"a#","default":"x","pattern":"[a-z]{900}|x"}`) + `],` + annotation + `}`,
		"patterns with groups":  `{"params":[` + many(n/8, `{"name":"a#","default":"x","pattern":"`+strings.Repeat("(a)", 300)+`|x"}`) + `],` + annotation + `}`,
		"patterns with classes": `{"params":[` + many(n/8, `{"name":"a#","default":"x","pattern":"`+strings.Repeat(`\\pL`, 300)+`|x"}`) + `],` + annotation + `}`,
		"without case":          `{"params":[` + many(n/8, `{"name":"a#","default":"x","pattern":"(?i)`+strings.Repeat("k", 900)+`|x"}`) + `],` + annotation + `}`,
		"matches":               container(`"args":[` + many(n/4, matches+`(r'a{900}#'))}"`) + `]`),
		"matches with classes":  container(`"args":[` + many(n/16, matches+`(r'`+strings.Repeat(`\\pL`, 300)+`#'))}"`) + `]`),
		"matches with escapes":  container(`"args":[` + many(n/16, matches+`('`+strings.Repeat(`\\x5cpL`, 140)+`\\x7b2}#'))}"`) + `]`),
		"variables":             `{"variables":[` + many(min(n, 64), `{"name":"v#","expression":"pod.spec.containers.size() + #"}`) + `],` + annotation + `}`,
		"expressions":           container(`"args":[` + many(n, `"${'#'}"`) + `]`),
		"several in a string":   container(`"args":["` + strings.ReplaceAll(many(n, `${'#'}`), ",", "") + `"]`),
		"sums":                  container(`"args":[` + many(n, `"${string(`+strings.Repeat("1+", 100)+`pod.spec.containers.size()+#)}"`) + `]`),
		"lists in expressions":  container(`"args":[` + many(n, `"${[`+strings.Repeat("1,", 100)+`#].map(x,string(x)).join(',')}"`) + `]`),
		"conditional":           container(`"env":[` + many(n, `{"name":"A#","${when}":"pod.spec.containers.size() > #","value":"x"}`) + `]`),
		"condition":             `{"match":{"condition":"` + strings.Repeat("1+", 100) + `1 > 1"},` + annotation + `}`,
		"for each":              `{"forEachContainer":[` + many(n/4, `{"where":"container.name != '#'","add":{"env":[{"name":"A#","value":"x"}]}}`) + `]}`,
	} {
		text := templateText("SidecarTemplate", "team-a", "own", []byte(spec))
		const copies = 4
		if _, err := CompileTemplateText("x", slices.Clone(text)); err != nil { // and what is made once
			t.Fatalf("%s: %.300s", what, err)
		}
		before, all := heap(), []*templates.Template{}
		for range copies {
			one, err := CompileTemplateText("x", slices.Clone(text))
			if err != nil {
				t.Fatalf("%s: %.300s", what, err)
			}
			all = append(all, one)
		}
		takes := int(heap()-before) / copies
		runtime.KeepAlive(all)
		estimate := Memory(text)
		t.Logf("%-20s %6d bytes of JSON take %5d KiB, %3.0f times as much; the estimate is %5d KiB", what, len(text), takes>>10, float64(takes)/float64(len(text)), estimate>>10)
		if takes > estimate+32<<10 { // what is shared by all
			t.Errorf("%s takes %d bytes, the estimate is %d", what, takes, estimate)
		}
		if estimate > 5*takes {
			t.Errorf("%s takes only %d bytes, the estimate is %d", what, takes, estimate)
		}
	}
}
