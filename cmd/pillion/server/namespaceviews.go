// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// inUse is the state that requests read. It is immutable.
type inUse struct {
	set    *templates.Set
	others *view            // of namespaces without templates of their own
	views  map[string]*view // of the other namespaces
}

// view is what the pods of a namespace get. Its history is its own, so that changes in other
// namespaces never push out a set that was in use here a moment ago.
type view struct {
	injector *inject.Injector
	judge    *inject.Judge
	load     int          // that brought its set
	kept     []superseded // newest first
}

// superseded is an injector that was in use until a load.
type superseded struct {
	injector *inject.Injector
	load     int
}

// viewOf returns the view of a namespace.
func (u *inUse) viewOf(namespace string) *view {
	if v := u.views[namespace]; v != nil {
		return v
	}
	return u.others
}

// allViews yields every view.
func (u *inUse) allViews(yield func(*view) bool) {
	if !yield(u.others) {
		return
	}
	for _, v := range u.views {
		if !yield(v) {
			return
		}
	}
}

// viewer makes views.
type viewer struct {
	excluded []string // namespaces
	loads    int      // number of successful loads of a new set
	settled  int      // the last load that has settled
	warn     bool     // see templateReloader.warnUninjected
	history  int64    // most memory of superseded templates of namespaces, in bytes, except for the latest ones of each
}

// nextState returns the state with a new set. It keeps the views whose templates
// stay the same. The previous sets still count if keep is true.
func (w *viewer) nextState(before *inUse, set *templates.Set, keep bool) *inUse {
	w.loads++
	now := &inUse{set: set, views: map[string]*view{}}
	names := map[string]bool{}
	for _, name := range set.Namespaces() {
		names[name] = true
	}
	if before == nil {
		now.others = w.viewWithSet(nil, set.For(""), false)
	} else {
		now.others = w.viewWithSet(before.others, set.For(""), keep)
		for name, v := range before.views { // until its former sets have settled
			names[name] = names[name] || len(v.kept) > 0 || !sameTemplates(v.injector.Set(), now.others.injector.Set())
		}
	}
	for name, needed := range names {
		if !needed {
			continue
		}
		var old *view
		if before != nil {
			old = before.viewOf(name)
		}
		now.views[name] = w.viewWithSet(old, set.For(name), keep)
	}
	w.limitHistory(now)
	return now
}

// limitHistory drops superseded sets, the oldest ones of the namespaces whose sets take most memory, until the others are
// within the limit. The latest superseded set of each namespace stays, because pods that it has injected are checked a
// moment later.
func (w *viewer) limitHistory(now *inUse) {
	total, sizes := int64(0), map[string]int64{}
	for name, v := range now.views {
		if len(v.kept) > 1 {
			sizes[name] = v.supersededMemory()
			total += sizes[name]
		}
	}
	for total > w.history && len(sizes) > 0 {
		most := ""
		for name, size := range sizes {
			if size > sizes[most] || most == "" {
				most = name
			}
		}
		v := now.views[most]
		v = w.withJudge(&view{injector: v.injector, load: v.load, kept: v.kept[:len(v.kept)-1]})
		now.views[most] = v
		total -= sizes[most]
		delete(sizes, most)
		if len(v.kept) > 1 {
			sizes[most] = v.supersededMemory()
			total += sizes[most]
		}
	}
}

// supersededMemory returns the memory of the templates of a namespace that only its superseded sets have, without the latest
// one.
func (v *view) supersededMemory() (size int64) {
	known := map[*templates.Template]bool{}
	for _, of := range append([]*inject.Injector{v.injector}, v.kept[0].injector) {
		for _, t := range of.Set().Templates {
			known[t] = true
		}
	}
	for _, of := range v.kept[1:] {
		for _, t := range of.injector.Set().Templates {
			if !known[t] && t.Namespace != "" {
				known[t] = true
				size += int64(t.Memory)
			}
		}
	}
	return size
}

// viewWithSet returns a view with a set.
func (w *viewer) viewWithSet(before *view, set *templates.Set, keep bool) *view {
	if before != nil && sameTemplates(before.injector.Set(), set) {
		return before
	}
	v := &view{injector: inject.New(set, w.excluded...), load: w.loads}
	if before != nil && keep {
		v.kept = append([]superseded{{before.injector, w.loads}}, before.kept...)
		v.kept = v.kept[:min(len(v.kept), inject.MaxSets-1)]
	}
	return w.withJudge(v)
}

func sameTemplates(a, b *templates.Set) bool { return a.Revision == b.Revision }

// withJudge returns a copy of the view with the judge that it needs now.
func (w *viewer) withJudge(v *view) *view {
	kept := make([]*inject.Injector, len(v.kept))
	for i := range v.kept {
		kept[i] = v.kept[i].injector
	}
	judge := inject.NewJudge(v.injector, kept, v.load <= w.settled)
	if w.warn {
		judge = judge.Lenient()
	}
	return &view{injector: v.injector, judge: judge, load: v.load, kept: v.kept}
}

// dropSuperseded returns the state without the sets that were superseded up to a load.
func (w *viewer) dropSuperseded(before *inUse, load int) *inUse {
	w.settled = max(w.settled, load)
	settled := func(v *view) *view {
		if len(v.kept) == 0 && v.load != load {
			return v
		}
		v = &view{injector: v.injector, load: v.load, kept: slices.DeleteFunc(slices.Clone(v.kept), func(s superseded) bool { return s.load <= load })}
		return w.withJudge(v)
	}
	now := &inUse{set: before.set, others: settled(before.others), views: map[string]*view{}}
	for name, v := range before.views {
		if v = settled(v); len(v.kept) > 0 || !sameTemplates(v.injector.Set(), now.others.injector.Set()) {
			now.views[name] = v
		}
	}
	return now
}

// withNewJudges returns the state with new judges.
func (w *viewer) withNewJudges(before *inUse) *inUse {
	now := &inUse{set: before.set, others: w.withJudge(before.others), views: maps.Clone(before.views)}
	for name, v := range now.views {
		now.views[name] = w.withJudge(v)
	}
	return now
}
