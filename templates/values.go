// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/tree"
)

// valueRule checks a scalar, written or rendered. The error says what is wrong
// with it.
type valueRule func(*tree.Node) error

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
	if q, err := quantityOf(n); err != nil || q.Sign() < 0 {
		return fmt.Errorf("%s is not "+aQuantity, n)
	}
	return nil
}

func quantityOf(n *tree.Node) (quantity.Quantity, error) {
	if n.Kind() == tree.String {
		return ParseQuantity(n.Text())
	}
	return ParseQuantity(n.String())
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
			return fmt.Errorf("%q is not a port; write a number without quotes, or the name of a port", n.Text())
		}
		return nil
	}
	if i, err := strconv.Atoi(n.String()); err != nil || i < 1 || i > 65535 {
		return fmt.Errorf("%s is not a port: 1 to 65535", n)
	}
	return nil
}

func inRange(least, most int64) valueRule {
	return func(n *tree.Node) error {
		if i, err := strconv.ParseInt(n.String(), 10, 64); err != nil || i < least || i > most {
			return fmt.Errorf("%s must be from %d to %d", n, least, most)
		}
		return nil
	}
}

// passes is one of Kubernetes' own checks.
func passes(check func(string) []string) valueRule {
	return func(n *tree.Node) error {
		if errs := check(n.Text()); len(errs) > 0 {
			return fmt.Errorf("%q: %s", n.Text(), brief(errs[0]))
		}
		return nil
	}
}

func orEmpty(rule valueRule) valueRule {
	return func(n *tree.Node) error {
		if n.Text() == "" {
			return nil
		}
		return rule(n)
	}
}

func isAtMost(bytes int) valueRule {
	return func(n *tree.Node) error {
		if len(n.Text()) > bytes {
			return fmt.Errorf("is %d bytes long; at most %d are allowed", len(n.Text()), bytes)
		}
		return nil
	}
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

// isNotTokenPath: serviceAccountToken decides who gets the token, and not a mount in the user's containers.
func isNotTokenPath(applies bool) valueRule {
	return func(n *tree.Node) error {
		if applies && strings.TrimRight(n.Text(), "/") == TokenPath {
			return errors.New("a template may not mount anything at the path of the pod's API token")
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
	if n.Kind() == tree.String && n.IsText("") {
		return errors.New("must not be empty")
	}
	return nil
}

func isRelative(n *tree.Node) error {
	if path.IsAbs(n.Text()) {
		return fmt.Errorf("%q must be a relative path", n.Text())
	}
	return nil
}
