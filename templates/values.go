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

// valueRule is a rule for a scalar, literal or rendered.
type valueRule struct {
	cel   string                 // for policies: a condition on VALUE that implies the rule, or "" if there is none
	check func(*tree.Node) error // an error describes what is wrong
}

func checkValue(rules []valueRule, n *tree.Node) error {
	for _, rule := range rules {
		if err := rule.check(n); err != nil {
			return err
		}
	}
	return nil
}

func each(rules []valueRule) valueRule {
	return valueRule{"", func(n *tree.Node) error {
		items := n.Items()
		for i := range items {
			if err := checkValue(rules, &items[i]); err != nil {
				return err
			}
		}
		return nil
	}}
}

var isQuantity = valueRule{strings.ReplaceAll(ParamType("quantity").Policy().Check, "TEXT", "string(VALUE)") + ` && quantity(string(VALUE)).compareTo(quantity("0")) >= 0`, func(n *tree.Node) error {
	if q, err := quantityOf(n); err != nil || q.Sign() < 0 {
		return fmt.Errorf("%s is not "+aQuantity, n)
	}
	return nil
}}

func quantityOf(n *tree.Node) (quantity.Quantity, error) {
	if n.Kind() == tree.String {
		return ParseQuantity(n.Text())
	}
	return ParseQuantity(n.String())
}

func fitsInt(bits int) valueRule {
	return valueRule{fmt.Sprintf("VALUE <= %d", int64(1)<<(bits-1)-1), func(n *tree.Node) error {
		if n.Kind() != tree.Number {
			return nil
		}
		if _, err := strconv.ParseInt(n.String(), 10, bits); err != nil {
			return fmt.Errorf("%s is not an integer of %d bits", n, bits)
		}
		return nil
	}}
}

var isNotNegative = valueRule{`VALUE >= 0`, func(n *tree.Node) error {
	if strings.HasPrefix(n.String(), "-") {
		return fmt.Errorf("%s must not be negative", n)
	}
	return nil
}}

// isPort allows a port number. It also allows a name if the type does.
var isPort = valueRule{`type(VALUE) == int ? dyn(VALUE) >= 1 && dyn(VALUE) <= 65535 : ` +
	`dyn(VALUE).matches("^([a-z0-9]+-?)*[a-z0-9]+$") && dyn(VALUE).matches("[a-z]") && size(dyn(VALUE)) <= 15`, func(n *tree.Node) error {
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
}}

func inRange(least, most int64) valueRule {
	return valueRule{fmt.Sprintf("VALUE >= %d && VALUE <= %d", least, most), func(n *tree.Node) error {
		if i, err := strconv.ParseInt(n.String(), 10, 64); err != nil || i < least || i > most {
			return fmt.Errorf("%s must be from %d to %d", n, least, most)
		}
		return nil
	}}
}

// passes returns a rule for one of Kubernetes' own checks.
func passes(check func(string) []string) valueRule {
	return valueRule{"", func(n *tree.Node) error {
		if errs := check(n.Text()); len(errs) > 0 {
			return fmt.Errorf("%q: %s", n.Text(), brief(errs[0]))
		}
		return nil
	}}
}

var isSubdomain = valueRule{
	`VALUE.matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$") && size(VALUE) <= 253`,
	passes(validation.IsDNS1123Subdomain).check,
}

func orEmpty(rule valueRule) valueRule {
	return valueRule{"", func(n *tree.Node) error {
		if n.Text() == "" {
			return nil
		}
		return rule.check(n)
	}}
}

func isAtMost(bytes int) valueRule {
	return valueRule{fmt.Sprintf("size(bytes(VALUE)) <= %d", bytes), func(n *tree.Node) error {
		if len(n.Text()) > bytes {
			return fmt.Errorf("is %d bytes long; at most %d are allowed", len(n.Text()), bytes)
		}
		return nil
	}}
}

func isOneOf(allowed []string) valueRule {
	return valueRule{"VALUE in [\"" + strings.Join(allowed, `", "`) + `"]`, func(n *tree.Node) error {
		if !slices.Contains(allowed, n.Text()) {
			return fmt.Errorf("%q must be one of %s", n.Text(), strings.Join(allowed, ", "))
		}
		return nil
	}}
}

var isTrimmed = valueRule{`VALUE.trim() == VALUE`, func(n *tree.Node) error {
	if n.Text() != strings.TrimSpace(n.Text()) {
		return fmt.Errorf("%q must not begin or end with a space", n.Text())
	}
	return nil
}}

var isEnvName = valueRule{"", func(n *tree.Node) error {
	if errs := validation.IsRelaxedEnvVarName(n.Text()); len(errs) > 0 {
		return fmt.Errorf("%q is not the name of an environment variable: %s", n.Text(), brief(errs[0]))
	}
	return nil
}}

// isNotTokenPath returns a rule against mounts at the token's path. Only serviceAccountToken
// decides which containers get the token, not a mount in the user's containers. In policies, the
// rule holds for computed mounts of all containers.
func isNotTokenPath(applies bool) valueRule {
	return valueRule{`!VALUE.matches("^` + TokenPath + `/*$")`, func(n *tree.Node) error {
		if applies && strings.TrimRight(n.Text(), "/") == TokenPath {
			return errors.New("a template may not mount anything at the path of the pod's API token")
		}
		return nil
	}}
}

var hasNoBackstep = valueRule{`!VALUE.matches("(^|/)\\.\\.(/|$)")`, func(n *tree.Node) error {
	if slices.Contains(strings.Split(n.Text(), "/"), "..") {
		return fmt.Errorf("%q must not contain .. in its path", n.Text())
	}
	return nil
}}

var isLabelKey = valueRule{"", func(n *tree.Node) error {
	if errs := validation.IsQualifiedName(n.Text()); n.Text() != "" && len(errs) > 0 {
		return fmt.Errorf("%q is not a valid key: %s", n.Text(), brief(errs[0]))
	}
	return nil
}}

var isIP = valueRule{"", func(n *tree.Node) error {
	if _, err := netip.ParseAddr(n.Text()); err != nil {
		return fmt.Errorf("%q is not an IP address", n.Text())
	}
	return nil
}}

var isLabelValue = valueRule{`VALUE.matches("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$") && size(VALUE) <= 63`, func(n *tree.Node) error {
	if errs := validation.IsValidLabelValue(n.Text()); len(errs) > 0 {
		return fmt.Errorf("%q is not a valid label value: %s", n.Text(), brief(errs[0]))
	}
	return nil
}}

var isNotEmpty = valueRule{`string(VALUE) != ""`, func(n *tree.Node) error {
	if n.Kind() == tree.String && n.IsText("") {
		return errors.New("must not be empty")
	}
	return nil
}}

var isRelative = valueRule{`!VALUE.startsWith("/")`, func(n *tree.Node) error {
	if path.IsAbs(n.Text()) {
		return fmt.Errorf("%q must be a relative path", n.Text())
	}
	return nil
}}
