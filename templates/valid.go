// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/tree"
)

// What a template gets wrong by itself, whatever the pod, is a problem when it is
// loaded: these are the rules of the API server's validation (ValidatePodCreate) for
// one object of a fragment. A rule over values that are computed is applied when
// they are. The module e2e/validity compares all of them with Kubernetes' own code.

// shape is which fields an object must have, whatever their values.
type shape struct {
	required []string // and not empty
	one      []string // exactly one of them
	some     []string // at least one of them
	never    []string // what a template may not set
}

// objectRule is about an object as a whole.
type objectRule struct {
	reads []string // the fields that it is about, and of lists those of the items: all it looks at
	check func(object *tree.Node) error
	// fewer: fewer items of a list never break it, so that a ${when} does not matter.
	fewer bool
	// own: the API server takes what breaks it, and a template should not have it.
	own bool
	// applies says whether the object has what the rule is about; nil: always.
	applies func(o *part) bool
}

// shapeOf is by the object's place, such as Container.livenessProbe, or its type.
func shapeOf(t reflect.Type, place string) shape {
	if s, ok := shapes()[place]; ok {
		return s
	}
	return shapes()[t.Name()]
}

func objectRulesOf(t reflect.Type, place string) []objectRule {
	byType, byPlace := objectRules()[t.Name()], objectRules()[place]
	if len(byPlace) == 0 {
		return byType
	}
	return append(slices.Clone(byType), byPlace...)
}

var shapes = sync.OnceValue(func() map[string]shape { return merged(shapesOfContainers(), shapesOfVolumes()) })

var objectRules = sync.OnceValue(func() map[string][]objectRule { return merged(containerRules(), volumeRules()) })

var placeRules = sync.OnceValue(func() map[string][]valueRule { return merged(valuesOfContainers(), valuesOfVolumes()) })

func merged[V any](all ...map[string]V) map[string]V {
	m := map[string]V{}
	for i := range all {
		maps.Copy(m, all[i])
	}
	return m
}

// hasShape checks which keys an object has.
func (c *checker) hasShape(y *yaml.Node, s shape, path string) {
	for _, name := range s.required {
		if child(y, name) == nil {
			c.problem(y, join(path, name), "is missing")
		}
	}
	for _, name := range s.never {
		if found := child(y, name); found != nil {
			c.problem(found, join(path, name), "a template may not set this")
		}
	}
	var there []string
	for _, name := range slices.Concat(s.one, s.some) {
		if child(y, name) != nil {
			there = append(there, name)
		}
	}
	switch all := strings.Join(slices.Concat(s.one, s.some), ", "); {
	case len(there) == 0 && all != "":
		c.problem(y, path, "must have one of %s", all)
	case len(there) > 1 && len(s.one) > 0:
		c.problem(y, path, "has %s; only one of them is allowed", strings.Join(there, " and "))
	}
}

// objectRules applies the rules to what of the object is known, and leaves the others
// to the part.
func (c *checker) objectRules(y *yaml.Node, o *part, all []objectRule, path string) {
	if len(all) == 0 {
		return
	}
	known := o.known()
	known.Seal()
	for _, rule := range all {
		computed := func(when bool) bool {
			return slices.ContainsFunc(rule.reads, func(path string) bool { return o.computes(path, when) })
		}
		if rule.applies != nil && !rule.applies(o) {
			continue
		}
		if computed(!rule.fewer) {
			o.rules = append(o.rules, rule.check)
		} else if err := rule.check(&known); err != nil && computed(true) {
			o.rules = append(o.rules, rule.check)
		} else if err != nil {
			c.problem(y, path, "%v", err)
		}
	}
}

// known is the part without what is computed.
func (p *part) known() tree.Node {
	switch p.kind {
	case staticPart:
		return p.static
	case objectPart:
		n := tree.Members()
		for i, child := range p.parts {
			if child.kind != leafPart {
				n.Set(p.names[i], child.known())
			}
		}
		return n
	case listPart:
		n := tree.Items()
		for _, child := range p.parts {
			if child.kind != leafPart {
				n.Append(child.known())
			}
		}
		return n
	}
	return tree.Node{}
}

// computes says whether what is at a path depends on the pod; with when, whether an
// item of a list is there too.
func (p *part) computes(path string, when bool) bool {
	switch p.kind {
	case staticPart:
		return false
	case leafPart:
		return true
	case listPart:
		return slices.ContainsFunc(p.parts, func(item *part) bool { return when && item.when != nil || item.computes(path, when) })
	}
	if path == "" {
		return slices.ContainsFunc(p.parts, func(child *part) bool { return child.computes("", when) })
	}
	for i, child := range p.parts {
		if rest, ok := strings.CutPrefix(path, p.names[i]); ok && (rest == "" || rest[0] == '.') && child.computes(strings.TrimPrefix(rest, "."), when) {
			return true
		}
	}
	return false
}

// Broken says which rule an object of type t breaks that a fragment was added to.
func Broken(t reflect.Type, object, fragment *tree.Node) error {
	for _, rule := range objectRules()[t.Name()] {
		if !rule.own && slices.ContainsFunc(rule.reads, func(path string) bool {
			name, _, _ := strings.Cut(path, ".")
			return fragment.Get(name) != nil
		}) {
			if err := rule.check(object); err != nil {
				return err
			}
		}
	}
	return nil
}

// needs is a rule for a field that may be there only if another has a value.
func needs(name string, when func(*tree.Node) bool, other string, ok func(*tree.Node) bool, message string) objectRule {
	applies := func(o *part) bool { // if one of them is never there, that may be all there is to know
		return (when(nil) || has(name)(o)) && (!ok(nil) || has(other)(o))
	}
	return objectRule{applies: applies, reads: []string{name, other}, check: func(n *tree.Node) error {
		if when(n.Get(name)) && !ok(n.Get(other)) {
			return errors.New(message)
		}
		return nil
	}}
}

func has(field string) func(*part) bool {
	return func(o *part) bool { return slices.Contains(o.names, field) }
}

// hasTwo says whether a list has more items than one.
func hasTwo(list string) func(*part) bool {
	return func(o *part) bool {
		i := slices.Index(o.names, list)
		return i >= 0 && (len(o.parts[i].parts) > 1 || len(o.parts[i].static.Items()) > 1)
	}
}

// hasName is a rule for a reference to a Secret, which has a name.
func hasName() objectRule {
	return objectRule{reads: []string{"name"}, check: func(n *tree.Node) error {
		if errs := validation.IsDNS1123Subdomain(n.Get("name").Text()); len(errs) > 0 {
			return fmt.Errorf("name: %s", brief(errs[0]))
		}
		return nil
	}}
}

func present(n *tree.Node) bool { return n != nil }
func isTrue(n *tree.Node) bool  { return n.Kind() == tree.True }
func isFalse(n *tree.Node) bool { return n.Kind() == tree.False }

func is(texts ...string) func(*tree.Node) bool {
	return func(n *tree.Node) bool { return slices.Contains(texts, n.Text()) }
}

func not(f func(*tree.Node) bool) func(*tree.Node) bool {
	return func(n *tree.Node) bool { return !f(n) }
}

// unique is a rule for a list whose items each have another value of a field ("" is
// the item itself).
func unique(list, field string) objectRule {
	return objectRule{fewer: true, applies: hasTwo(list), reads: []string{strings.TrimSuffix(list+"."+field, ".")}, check: func(n *tree.Node) error {
		items := n.Get(list).Items()
		const few = 32 // are sooner compared than put into a map
		keys, seen := make([]string, 0, few), map[string]bool(nil)
		if len(items) > few {
			keys, seen = nil, make(map[string]bool, len(items))
		}
		for i := range items {
			key := items[i].Text()
			if field != "" {
				key = items[i].Get(field).Text()
			}
			switch {
			case key == "":
			case seen[key] || slices.Contains(keys, key):
				return fmt.Errorf("%s has %q twice", list, key)
			case seen != nil:
				seen[key] = true
			default:
				keys = append(keys, key)
			}
		}
		return nil
	}}
}

// enumerations are the texts that the API's types allow.
var enumerations = sync.OnceValue(func() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[corev1.PullPolicy]():                  texts(corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
		reflect.TypeFor[corev1.Protocol]():                    texts(corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		reflect.TypeFor[corev1.TerminationMessagePolicy]():    texts(corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError),
		reflect.TypeFor[corev1.URIScheme]():                   texts(corev1.URISchemeHTTP, corev1.URISchemeHTTPS),
		reflect.TypeFor[corev1.HTTPProtocol]():                texts(corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2),
		reflect.TypeFor[corev1.GRPCProbeMode]():               texts(corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS),
		reflect.TypeFor[corev1.ResourceResizeRestartPolicy](): texts(corev1.NotRequired, corev1.RestartContainer),
		reflect.TypeFor[corev1.HostPathType](): texts(corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev),
		reflect.TypeFor[corev1.MountPropagationMode](): texts(corev1.MountPropagationNone, corev1.MountPropagationHostToContainer,
			corev1.MountPropagationBidirectional),
		reflect.TypeFor[corev1.RecursiveReadOnlyMode]():      texts(corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled),
		reflect.TypeFor[corev1.ProcMountType]():              texts(corev1.DefaultProcMount, corev1.UnmaskedProcMount),
		reflect.TypeFor[corev1.SeccompProfileType]():         texts(corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeLocalhost),
		reflect.TypeFor[corev1.AppArmorProfileType]():        texts(corev1.AppArmorProfileTypeUnconfined, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeLocalhost),
		reflect.TypeFor[corev1.TolerationOperator]():         texts("", corev1.TolerationOpEqual, corev1.TolerationOpExists),
		reflect.TypeFor[corev1.TaintEffect]():                texts("", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
		reflect.TypeFor[corev1.PersistentVolumeAccessMode](): texts(corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod),
		reflect.TypeFor[corev1.PersistentVolumeMode]():       texts(corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem),
		reflect.TypeFor[corev1.AzureDataDiskCachingMode]():   texts(corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite),
		reflect.TypeFor[corev1.AzureDataDiskKind]():          texts(corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk),
		reflect.TypeFor[corev1.Signal]():                     signals(),
	}
})

func texts[T ~string](all ...T) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = string(all[i])
	}
	return out
}

// signals are those that a container may be stopped with.
func signals() []string {
	all := strings.Fields("ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM " +
		"TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX")
	for i := range 15 {
		all = append(all, fmt.Sprintf("RTMIN+%d", i+1))
		if i < 14 {
			all = append(all, fmt.Sprintf("RTMAX-%d", i+1))
		}
	}
	for i := range all {
		all[i] = "SIG" + all[i]
	}
	return all
}
