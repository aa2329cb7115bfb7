// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
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
	place := index().ReplaceAllString(path, "[]")
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		rules = append(rules, isQuantity)
	case t == reflect.TypeFor[intstr.IntOrString]():
		rules = append(rules, fitsInt(32), isPort)
	case t.Kind() == reflect.Int32:
		rules = append(rules, fitsInt(32), isNotNegative)
	case (t.Kind() == reflect.Int || t.Kind() == reflect.Int64) && !strings.HasSuffix(place, ".tolerationSeconds"):
		rules = append(rules, fitsInt(64), isNotNegative)
	case t.Kind() == reflect.Slice:
		rules = append(rules, each(rulesFor(t.Elem(), "")))
	case choices(t) != nil:
		rules = append(rules, isOneOf(choices(t)))
	}
	if strings.HasPrefix(place, "spec.pod.metadata.labels") {
		return append(rules, isLabelValue)
	}
	switch field := place[strings.LastIndexByte(place, '.')+1:]; field {
	case "image":
		rules = append(rules, isNotEmpty, isTrimmed)
	case "name":
		if strings.HasSuffix(place, ".env[].name") {
			rules = append(rules, isEnvName)
		}
		rules = append(rules, isNotEmpty)
	case "mountPath":
		rules = append(rules, isNotEmpty, isNotTokenPath(strings.HasPrefix(place, "spec.forEachContainer")))
	case "devicePath", "secretName", "claimName":
		rules = append(rules, isNotEmpty)
	case "subPath", "path":
		rules = append(rules, hasNoBackstep)
	case "ip":
		rules = append(rules, isIP)
	case "key":
		if strings.HasSuffix(place, ".tolerations[].key") {
			rules = append(rules, isLabelKey)
		}
	case "containerPort", "hostPort":
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
	if q, err := ParseQuantity(text); err != nil || q.Sign() < 0 {
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

func isNotNegative(n *tree.Node) error {
	if strings.HasPrefix(n.String(), "-") {
		return fmt.Errorf("%s must not be negative", n)
	}
	return nil
}

// isPort allows a port's number, and a name where the type does.
func isPort(n *tree.Node) error {
	if n.Kind() == tree.String {
		if errs := validation.IsValidPortName(n.Text()); len(errs) > 0 {
			return fmt.Errorf("%q is no port: write a number without quotes, or a port's name", n.Text())
		}
		return nil
	}
	if i, err := strconv.Atoi(n.String()); err != nil || i < 1 || i > 65535 {
		return fmt.Errorf("%s is not a port: 1 to 65535", n)
	}
	return nil
}

func isOneOf(allowed []string) valueRule {
	return func(n *tree.Node) error {
		if !slices.Contains(allowed, n.Text()) {
			return fmt.Errorf("%q must be one of %s", n.Text(), strings.Join(allowed, ", "))
		}
		return nil
	}
}

func isTrimmed(n *tree.Node) error {
	if n.Text() != strings.TrimSpace(n.Text()) {
		return fmt.Errorf("%q must not begin or end with a space", n.Text())
	}
	return nil
}

func isEnvName(n *tree.Node) error {
	if errs := validation.IsRelaxedEnvVarName(n.Text()); len(errs) > 0 {
		return fmt.Errorf("%q is not the name of an environment variable: %s", n.Text(), brief(errs[0]))
	}
	return nil
}

// tokenPath is where the pod's API token is mounted; who gets it is decided by
// serviceAccountToken, not by a mount in the user's containers.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func isNotTokenPath(applies bool) valueRule {
	return func(n *tree.Node) error {
		if applies && strings.TrimRight(n.Text(), "/") == tokenPath {
			return errors.New("the place of the pod's API token is not a template's to take")
		}
		return nil
	}
}

func hasNoBackstep(n *tree.Node) error {
	if slices.Contains(strings.Split(n.Text(), "/"), "..") {
		return fmt.Errorf("%q must not contain .. in its path", n.Text())
	}
	return nil
}

func isLabelKey(n *tree.Node) error {
	if errs := validation.IsQualifiedName(n.Text()); n.Text() != "" && len(errs) > 0 {
		return fmt.Errorf("%q is not a valid key: %s", n.Text(), brief(errs[0]))
	}
	return nil
}

func isIP(n *tree.Node) error {
	if _, err := netip.ParseAddr(n.Text()); err != nil {
		return fmt.Errorf("%q is not an IP address", n.Text())
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
