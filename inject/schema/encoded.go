// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Some types of the API encode a value in another form than they decoded: quantities (0.5 becomes "500m") and times. The API
// server stores the new form, so expressions must see it.

// encodedScalar returns a scalar in the form in which the API server stores it. It returns an invalid value unchanged.
func (s *Schema) encodedScalar(n *jsontree.Node) jsontree.Node {
	switch {
	case s.Quantity:
		return encodedQuantity(n, resource.Nano)
	case s.ownEncoding && n.Kind() != jsontree.Null:
		v := reflect.New(s.GoType)
		if json.Unmarshal([]byte(n.String()), v.Interface()) != nil {
			return *n
		}
		if text, err := json.Marshal(v.Interface()); err == nil {
			if stored, err := jsontree.Parse(text); err == nil {
				return *stored
			}
		}
	case n.Kind() == jsontree.Number && n.String() == "-0":
		return jsontree.Int(0)
	}
	return *n
}

// encodedQuantity is encodedScalar for quantities. It rounds a quantity up to the scale, as the API server does in a list of
// resources. It does not use the decoder of quantities, which takes hours for some strings.
func encodedQuantity(n *jsontree.Node, scale resource.Scale) jsontree.Node {
	var text string
	switch n.Kind() {
	case jsontree.String:
		if text = n.Text(); isCanonical(text) {
			return *n
		}
	case jsontree.Number:
		text = n.String()
	case jsontree.Null:
		text = "0"
	default:
		return *n
	}
	q, err := values.ParseQuantity(strings.TrimSpace(text)) // the API server trims it too
	if err != nil {
		return *n
	}
	q.RoundUp(scale)
	return jsontree.Text(q.String())
}

// isCanonical reports whether a quantity certainly has the form in which it is stored. Nearly all quantities have it, and
// parsing them would allocate memory.
func isCanonical(text string) bool {
	const digits = 6 // more digits with the largest suffix could exceed the largest quantity
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	number, suffix := text[:end], text[end:]
	switch {
	case text == "0":
		return true
	case end == 0 || end > digits || text[0] == '0':
		return false
	case len(suffix) <= 1 && strings.Contains("mkMGT", suffix):
		return !strings.HasSuffix(number, "000")
	case len(suffix) == 2 && suffix[1] == 'i' && strings.Contains("KMGT", suffix[:1]):
		i, _ := strconv.Atoi(number)
		return i%1024 != 0
	}
	return false
}

// encodedQuantities returns a map of quantities in the form in which the API server stores it. If all is false, only added
// quantities are converted: the API server has stored the others already.
func (s *Schema) encodedQuantities(n *jsontree.Node, all bool) jsontree.Node {
	scale := resource.Nano
	if s.GoType == reflect.TypeFor[corev1.ResourceList]() {
		scale = resource.Milli
	}
	object := jsontree.Members()
	for i := range n.Members() {
		m := &n.Members()[i]
		if all || m.IsNew() {
			object.Set(m.Name(), encodedQuantity(m, scale))
		} else {
			object.Set(m.Name(), *m)
		}
	}
	return object
}
