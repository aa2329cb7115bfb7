// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/tree"
)

// Misplaced is a workload that has labels or annotations of Pillion's in its own metadata,
// where Pillion does not read them.
type Misplaced struct {
	Namespace string `json:"namespace"`
	Owner
	Why string `json:"why"` // one sentence
}

// Misplace finds out whether a workload is one. What something else makes is not: its
// metadata is nobody's mistake.
func (r *Report) Misplace(injector *inject.Injector, object []byte) error {
	var o struct {
		APIVersion, Kind string
		Metadata         metav1.ObjectMeta
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return err
	}
	if metav1.GetControllerOfNoCopy(&o.Metadata) != nil {
		return nil
	}
	node, err := new(tree.Parser).Parse(string(object), 0)
	if err != nil {
		return err
	}
	for _, f := range injector.Misplaced(o.APIVersion, o.Kind, node) {
		r.Misplaced = append(r.Misplaced, Misplaced{o.Metadata.Namespace, Owner{o.APIVersion, o.Kind, o.Metadata.Name}, f.Message})
	}
	return nil
}

// sortMisplaced orders them, and leaves out what came twice because a list began once more.
func (r *Report) sortMisplaced() {
	slices.SortFunc(r.Misplaced, func(a, b Misplaced) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), compareOwners(a.Owner, b.Owner), strings.Compare(a.Why, b.Why))
	})
	r.Misplaced = slices.Compact(r.Misplaced)
}

// misplacedShown is how many of them the text has.
const misplacedShown = 20

// misplaced says which workloads have keys in the wrong place.
func (r *Report) misplaced(p *page) {
	for i, m := range r.Misplaced {
		if i == misplacedShown {
			p.line(0, fmt.Sprintf("Misplaced: %d more; -o json has them", len(r.Misplaced)-i))
			return
		}
		p.line(0, fmt.Sprintf("Misplaced in the namespace %s: %s", m.Namespace, m.Why))
	}
}

func (r *Report) sayMisplaced() string {
	owners := map[string]bool{}
	for _, m := range r.Misplaced {
		owners[m.Namespace+" "+m.title()] = true
	}
	switch len(owners) {
	case 0:
		return ""
	case 1:
		return "; 1 workload has labels or annotations where Pillion does not read them"
	}
	return fmt.Sprintf("; %d workloads have labels or annotations where Pillion does not read them", len(owners))
}
