// SPDX-License-Identifier: Apache-2.0

package jsontree_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// dump writes the current content of a tree, and marks the additions.
func dump(b *strings.Builder, n *jsontree.Node) {
	if n.Added() {
		b.WriteByte('+')
	}
	switch n.Kind() {
	case jsontree.Object:
		for i := range n.Members() {
			fmt.Fprintf(b, "{%s:", n.Members()[i].Name())
			dump(b, &n.Members()[i])
		}
	case jsontree.Array:
		for i := range n.Items() {
			b.WriteByte('[')
			dump(b, &n.Items()[i])
		}
	}
	b.WriteString(n.String())
}

func dumped(n *jsontree.Node) string {
	var b strings.Builder
	dump(&b, n)
	return b.String()
}

// TestUndo checks that additions in any order, to long lists and in their items, are undone
// completely, and that kept additions stay.
func TestUndo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 0))
		text := `{"list":[{"in":[1]}` + strings.Repeat(`,{"in":[1,2]}`, g.IntN(300)) + `],"o":{"a":[],"n":null}}`
		root, err := jsontree.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		journal := &jsontree.Journal{Nodes: &jsontree.Arena{}}
		for round := range 6 {
			before := dumped(root)
			for i := range g.IntN(200) {
				list := root.Get("list")
				item := &list.Items()[g.IntN(len(list.Items()))]
				value := jsontree.Members(jsontree.Field("in", jsontree.Items(jsontree.Int(int64(i)))))
				switch g.IntN(5) {
				case 0:
					journal.Insert(list, g.IntN(len(list.Items())+1), value)
				case 1:
					journal.Insert(list, len(list.Items()), value)
				case 2:
					journal.Add(item, fmt.Sprint("m", round, "-", i), jsontree.Text("x"))
				case 3:
					journal.Insert(item.Get("in"), 0, jsontree.Int(7))
				case 4:
					journal.Add(root.Get("o"), []string{"a", "n", fmt.Sprint(i)}[g.IntN(3)], jsontree.Items())
				}
			}
			if g.IntN(2) == 0 {
				journal.Keep()
				continue
			}
			journal.Undo()
			if after := dumped(root); after != before {
				t.Fatalf("seed %d: \n%s\nbecame\n%s", seed, before, after)
			}
		}
	}
}

// TestManyInsertions checks that a list is not copied for each item that is inserted, nor when the
// insertions are undone.
func TestManyInsertions(t *testing.T) {
	const items, most = 900_000, 200 << 20 // a copy takes 55 MiB
	root, err := jsontree.Parse([]byte(`{"list":[{}` + strings.Repeat(",{}", items-1) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	list := root.Get("list")
	journal := &jsontree.Journal{}
	if len(list.Items()) != items {
		t.Fatal(len(list.Items()))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 50 {
		journal.Insert(list, i/2, jsontree.Text("first"))
		journal.Insert(list, len(list.Items()), jsontree.Text("last"))
		if i%2 == 0 {
			journal.Undo()
		} else {
			journal.Keep()
		}
	}
	runtime.ReadMemStats(&after)
	if memory := after.TotalAlloc - before.TotalAlloc; memory > most {
		t.Errorf("%d MiB", memory>>20)
	}
}

// TestManyLists checks that an insertion into one of many lists costs the same as into one of few.
func TestManyLists(t *testing.T) {
	const few, times, most = 1_000, 8, 24
	var was, is time.Duration
	for range 8 { // a disturbed measurement is repeated
		if was, is = insertions(t, few), insertions(t, times*few); is < most*was {
			return
		}
	}
	t.Errorf("%d times as many lists take %.1f times the time (%v)", times, float64(is)/float64(was), is)
}

// insertions returns the least CPU time of a few runs that insert more items into each of the lists
// than the parser left room for.
func insertions(t *testing.T, lists int) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := time.Hour
	for range 4 {
		root, err := jsontree.Parse([]byte(`{"list":[[{}]` + strings.Repeat(",[{}]", lists-1) + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		journal, list := &jsontree.Journal{Nodes: &jsontree.Arena{}}, root.Get("list")
		began := cpu.Used(t)
		for i := range lists {
			for range 8 {
				journal.Insert(&list.Items()[i], 0, jsontree.Text("first"))
			}
		}
		least = min(least, cpu.Used(t)-began)
	}
	return least
}

// TestDropTentative checks that what was added tentatively disappears, with what was only made for it, and that null and [] are
// there again.
func TestDropTentative(t *testing.T) {
	t.Parallel()
	const text = `{"a":{"b":1},"list":[{"name":"x","empty":null}],"none":[],"nil":null}`
	n, err := jsontree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var j jsontree.Journal
	j.Add(n, "stays", jsontree.Text("s"))
	made := j.Add(n, "made", jsontree.Items())
	j.Insert(n.Get("list"), 0, jsontree.Members(jsontree.Field("name", jsontree.Text("new"))))
	j.Tentative = true
	j.Insert(made, 0, jsontree.Text("t"))
	j.Add(n.Get("a"), "c", jsontree.Text("t"))
	j.Insert(n.Get("list"), 0, jsontree.Text("t"))
	j.Add(&n.Get("list").Items()[2], "empty", jsontree.Text("t"))
	j.Add(n, "none", jsontree.Items(jsontree.Text("t")))
	j.Add(n, "nil", jsontree.Text("t"))
	j.Add(n, "new", jsontree.Members(jsontree.Field("x", jsontree.Text("t"))))
	if !n.Get("new").IsTentative() || n.Get("stays").IsTentative() {
		t.Error("what is tentative is wrong")
	}
	original, err := jsontree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n.DropTentative(original)
	const want = `{"a":{"b":1},"list":[{"name":"new"},{"name":"x","empty":null}],"none":[],"nil":null,"stays":"s"}`
	if got := string(n.AppendWithAdditions(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
