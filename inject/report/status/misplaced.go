// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Misplaced is a workload with Pillion's labels or annotations in its own metadata. Pillion does
// not read them there.
type Misplaced struct {
	Namespace string `json:"namespace"`
	Owner
	Why string `json:"why"` // one sentence
}

// findMisplaced returns what is misplaced in a workload. It ignores a workload that a
// controller made: no user wrote its metadata.
func findMisplaced(injector *inject.Injector, object []byte) ([]Misplaced, error) {
	var o struct {
		APIVersion, Kind string
		Metadata         metav1.ObjectMeta
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, err
	}
	if metav1.GetControllerOfNoCopy(&o.Metadata) != nil {
		return nil, nil
	}
	node, err := new(jsontree.Parser).Parse(string(object), 0)
	if err != nil {
		return nil, err
	}
	var all []Misplaced
	for _, f := range injector.Misplaced(o.APIVersion, o.Kind, node) {
		all = append(all, Misplaced{o.Metadata.Namespace, Owner{o.APIVersion, o.Kind, o.Metadata.Name}, f.Message})
	}
	return all, nil
}

// sortMisplaced sorts misplaced workloads and drops duplicates, which occur if a list of
// workloads had to be read again.
func sortMisplaced(all []Misplaced) []Misplaced {
	slices.SortFunc(all, func(a, b Misplaced) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), compareOwners(a.Owner, b.Owner), strings.Compare(a.Why, b.Why))
	})
	return slices.Compact(all)
}

// misplacedOwners returns the number of workloads with misplaced keys.
func misplacedOwners(all []Misplaced) int {
	owners := map[string]bool{}
	for _, m := range all {
		owners[m.Namespace+" "+m.title()] = true
	}
	return len(owners)
}
