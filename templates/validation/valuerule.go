// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// ValueRule is a rule for a value, literal or rendered: a scalar, a list or an object.
type ValueRule struct {
	cel   string                     // for policies: a condition on VALUE that implies the rule, or "" if there is none
	check func(*jsontree.Node) error // an error describes what is wrong
}

// CEL returns the condition on VALUE that implies the rule. It returns "" if there is none, or if policies have conditions of their
// own for the rule, see [ValueRule.IsPoliced].
func (r ValueRule) CEL() string {
	if r.IsPoliced() {
		return ""
	}
	return r.cel
}

// policed stands for the condition of a rule for which policies have conditions of their own.
const policed = "policed"

// IsPoliced reports whether policies have conditions of their own for the rule.
func (r ValueRule) IsPoliced() bool { return r.cel == policed }

// CheckValue returns an error if a value breaks one of the rules.
func CheckValue(rules []ValueRule, n *jsontree.Node) error {
	for _, rule := range rules {
		if err := rule.check(n); err != nil {
			return err
		}
	}
	return nil
}

func eachItem(rules []ValueRule) ValueRule {
	return ValueRule{"", func(n *jsontree.Node) error {
		items := n.Items()
		for i := range items {
			if err := CheckValue(rules, &items[i]); err != nil {
				return err
			}
		}
		return nil
	}}
}

var isQuantity = ValueRule{strings.ReplaceAll(params.PolicyOf(&v1alpha1.Param{Type: "quantity"}).Check, "TEXT", "string(VALUE)") + ` && quantity(string(VALUE)).compareTo(quantity("0")) >= 0`, func(n *jsontree.Node) error {
	if q, err := quantityOf(n); err != nil || q.Sign() < 0 {
		return fmt.Errorf("%s is not "+values.QuantityWords, n)
	}
	return nil
}}

func quantityOf(n *jsontree.Node) (quantity.Quantity, error) {
	if n.Kind() == jsontree.String {
		return values.ParseQuantity(n.Text())
	}
	return values.ParseQuantity(n.String())
}

func fitsInt(bits int) ValueRule {
	return ValueRule{fmt.Sprintf("VALUE <= %d", int64(1)<<(bits-1)-1), func(n *jsontree.Node) error {
		if n.Kind() != jsontree.Number {
			return nil
		}
		if _, err := strconv.ParseInt(n.String(), 10, bits); err != nil {
			return fmt.Errorf("%s is not an integer of %d bits", n, bits)
		}
		return nil
	}}
}

var isNotNegative = ValueRule{`VALUE >= 0`, func(n *jsontree.Node) error {
	if strings.HasPrefix(n.String(), "-") {
		return fmt.Errorf("%s must not be negative", n)
	}
	return nil
}}

// isPort allows a port number. It also allows a name if the type does.
var isPort = ValueRule{`type(VALUE) == int ? dyn(VALUE) >= 1 && dyn(VALUE) <= 65535 : ` +
	`dyn(VALUE).matches("^([a-z0-9]+-?)*[a-z0-9]+$") && dyn(VALUE).matches("[a-z]") && size(dyn(VALUE)) <= 15`, func(n *jsontree.Node) error {
	if n.Kind() == jsontree.String {
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

func inRange(least, most int64) ValueRule {
	return ValueRule{fmt.Sprintf("VALUE >= %d && VALUE <= %d", least, most), func(n *jsontree.Node) error {
		if i, err := strconv.ParseInt(n.String(), 10, 64); err != nil || i < least || i > most {
			return fmt.Errorf("%s must be from %d to %d", n, least, most)
		}
		return nil
	}}
}

// textRule returns a rule for strings. The message contains %q, which is the string.
func textRule(cel string, ok func(string) bool, message string) ValueRule {
	return ValueRule{cel, func(n *jsontree.Node) error {
		if text := n.Text(); !ok(text) {
			return fmt.Errorf(message, text)
		}
		return nil
	}}
}

// passesCheck returns a rule for one of Kubernetes' own checks, which returns what is wrong. The message
// contains %q, which is the string.
func passesCheck(cel string, check func(string) []string, message string) ValueRule {
	return ValueRule{cel, func(n *jsontree.Node) error {
		if errs := check(n.Text()); len(errs) > 0 {
			return fmt.Errorf(message+": %s", n.Text(), problem.TrimPattern(errs[0]))
		}
		return nil
	}}
}

var isSubdomain = passesCheck(
	`VALUE.matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$") && size(VALUE) <= 253`, validation.IsDNS1123Subdomain, "%q",
)

// IsLabel reports whether a string is a label of RFC 1123, the form that Kubernetes requires for names.
var IsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString

// isName allows names of containers and volumes.
var isName = textRule("", IsLabel, "%q must be a DNS label: at most 63 of a-z, 0-9 and -")

var isNotTokenVolume = textRule("", func(s string) bool { return !isTokenVolume(s) }, "the name %q is reserved for the volumes of the API token")

// orEmpty returns a rule that also allows the empty string.
func orEmpty(rule ValueRule) ValueRule {
	return ValueRule{"", func(n *jsontree.Node) error {
		if n.Text() == "" {
			return nil
		}
		return rule.check(n)
	}}
}

func isAtMost(bytes int) ValueRule {
	return ValueRule{fmt.Sprintf("size(bytes(VALUE)) <= %d", bytes), func(n *jsontree.Node) error {
		if len(n.Text()) > bytes {
			return fmt.Errorf("is %d bytes long; at most %d are allowed", len(n.Text()), bytes)
		}
		return nil
	}}
}

func isOneOf(allowed []string) ValueRule {
	return ValueRule{"VALUE in [\"" + strings.Join(allowed, `", "`) + `"]`, func(n *jsontree.Node) error {
		if !slices.Contains(allowed, n.Text()) {
			return fmt.Errorf("%q must be one of %s", n.Text(), strings.Join(allowed, ", "))
		}
		return nil
	}}
}

var isTrimmed = textRule(`VALUE.trim() == VALUE`, func(s string) bool { return strings.TrimSpace(s) == s }, "%q must not begin or end with a space")

var isEnvName = passesCheck("", validation.IsRelaxedEnvVarName, "%q is not the name of an environment variable")

// isNotTokenPath returns a rule against mounts at the token's path. Only serviceAccountToken
// decides which containers get the token, not a mount in the user's containers. In policies, the
// rule holds for computed mounts of all containers.
func isNotTokenPath(applies bool) ValueRule {
	return ValueRule{`!VALUE.matches("^` + TokenPath + `/*$")`, func(n *jsontree.Node) error {
		if applies && strings.TrimRight(n.Text(), "/") == TokenPath {
			return errors.New("a template may not mount anything at the path of the pod's API token")
		}
		return nil
	}}
}

var hasNoBackstep = textRule(
	`!VALUE.matches("(^|/)\\.\\.(/|$)")`, func(s string) bool { return !slices.Contains(strings.Split(s, "/"), "..") }, "%q must not contain .. in its path",
)

var isLabelKey = orEmpty(passesCheck("", validation.IsQualifiedName, "%q is not a valid key"))

var isIP = textRule("", func(s string) bool { _, err := netip.ParseAddr(s); return err == nil }, "%q is not an IP address")

var isLabelValue = passesCheck(
	`VALUE.matches("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$") && size(VALUE) <= 63`, validation.IsValidLabelValue, "%q is not a valid label value",
)

var isNotEmpty = ValueRule{`string(VALUE) != ""`, func(n *jsontree.Node) error {
	if n.Kind() == jsontree.String && n.IsText("") {
		return ErrEmpty
	}
	return nil
}}

// ErrEmpty is the error of a value that must not be empty.
var ErrEmpty = errors.New("must not be empty")

// hasItems is isNotEmpty for a list or a map.
var hasItems = ValueRule{`size(VALUE) > 0`, func(n *jsontree.Node) error {
	if len(n.Items())+len(n.Members()) == 0 {
		return ErrEmpty
	}
	return nil
}}

var isRelative = textRule(`!VALUE.startsWith("/")`, func(s string) bool { return !path.IsAbs(s) }, "%q must be a relative path")
