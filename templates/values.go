// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/tree"
)

// valueRule checks a scalar, written or rendered. The error says what is wrong
// with it.
type valueRule func(*tree.Node) error

// rulesFor are the rules of the place: its Go type's, which a pod must keep to
// or the API server cannot decode it (and refuses it, whatever the webhook's
// failurePolicy says), and the validation rules that an expression's value
// breaks most easily.
func rulesFor(t reflect.Type, path string) []valueRule {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var rules []valueRule
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		rules = append(rules, isQuantity)
	case t == reflect.TypeFor[intstr.IntOrString]():
		rules = append(rules, fitsInt(32), isPort)
	case t.Kind() == reflect.Int32:
		rules = append(rules, fitsInt(32))
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		rules = append(rules, fitsInt(64))
	case t.Kind() == reflect.Slice:
		rules = append(rules, each(rulesFor(t.Elem(), "")))
	}
	switch place := index().ReplaceAllString(path, "[]"); {
	case strings.HasPrefix(place, "spec.pod.metadata.labels"):
		rules = append(rules, isLabelValue)
	case strings.HasSuffix(place, "ontainers[].image"), strings.HasSuffix(place, ".mountPath"), strings.HasSuffix(place, ".env[].name"):
		rules = append(rules, isNotEmpty)
	case strings.HasSuffix(place, ".containerPort"), strings.HasSuffix(place, ".hostPort"):
		rules = append(rules, isPort)
	}
	return rules
}

func index() *regexp.Regexp { return regexp.MustCompile(`\[\d+\]`) }

func checkValue(rules []valueRule, n *tree.Node) error {
	for _, rule := range rules {
		if err := rule(n); err != nil {
			return err
		}
	}
	return nil
}

func each(rules []valueRule) valueRule {
	return func(n *tree.Node) error {
		items := n.Items()
		for i := range items {
			if err := checkValue(rules, &items[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func isQuantity(n *tree.Node) error {
	text := n.String()
	if n.Kind() == tree.String {
		text = n.Text()
	}
	if _, err := resource.ParseQuantity(text); err != nil {
		return fmt.Errorf("%q is not a quantity such as 100m or 64Mi", text)
	}
	return nil
}

func fitsInt(bits int) valueRule {
	return func(n *tree.Node) error {
		if n.Kind() != tree.Number {
			return nil
		}
		if _, err := strconv.ParseInt(n.String(), 10, bits); err != nil {
			return fmt.Errorf("%s is not an integer of %d bits", n, bits)
		}
		return nil
	}
}

// isPort allows a port's number, and a name where the type does.
func isPort(n *tree.Node) error {
	if n.Kind() != tree.Number {
		return nil
	}
	if i, err := strconv.Atoi(n.String()); err != nil || i < 1 || i > 65535 {
		return fmt.Errorf("%s is not a port: 1 to 65535", n)
	}
	return nil
}

func isLabelValue(n *tree.Node) error {
	if errs := validation.IsValidLabelValue(n.Text()); len(errs) > 0 {
		return fmt.Errorf("%q is not a valid label value: %s", n.Text(), brief(errs[0]))
	}
	return nil
}

func isNotEmpty(n *tree.Node) error {
	if n.Text() == "" {
		return errors.New("must not be empty")
	}
	return nil
}
