// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// mutation is the policy of one template while it is put together.
//
// It has one mutation only, so that the pod gets everything or nothing: the API
// server evaluates each mutation on what the one before made of the pod, and goes
// on when one fails.
type mutation struct {
	*builder
	pod  node
	each []eachNode
	ops  []string // list items of type JSONPatch
	apps []string // lists of JSONPatch, for each app container
	fit  []string // names of variables that must all hold
}

// eachNode is one entry of forEachContainer.
type eachNode struct {
	where          string
	initContainers bool
	add            node
	path           string
}

// mutating injects what the template says.
func (b *builder) mutating() []runtime.Object {
	m := &mutation{builder: b}
	conditions := append(b.rules(), admissionregistrationv1.MatchCondition{
		Name:       "not-customized",
		Expression: fmt.Sprintf(`%s[?%q].orValue("") != "true"`, podAnnotations, b.t.Annotation(templates.AnnotationCustomize)),
	})
	m.pod = b.fragment(b.t.PodFragment(), "spec.pod")
	m.eachNodes()
	m.supported()
	m.collisions()
	m.declare()
	m.safe()
	m.metadataOps()
	m.appOps()
	m.podOps()
	m.volumeOps()
	m.containerOps()
	expression := m.expression()
	for _, v := range append(b.variables, admissionregistrationv1.Variable{Expression: expression}) {
		if utf8.RuneCountInString(v.Expression) > maxExpression {
			b.problem("spec", "it adds so much that the expression for it is longer than the API server takes (%d characters)", maxExpression)
		}
	}
	name := "pillion-inject-" + b.t.Name
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: b.metadata(name, fmt.Sprintf("Injects Pillion's template %s: %s A pod with the annotation %s is left alone, and so is a pod that has anything in the way.",
			b.t.Name, describe(b.t), b.t.Annotation(templates.AnnotationCustomize))),
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      new(admissionregistrationv1.Ignore),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			MatchConstraints:   b.constraints(),
			MatchConditions:    conditions,
			Variables:          b.variables,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
			}},
		},
	}
	objects := []runtime.Object{policy}
	for _, o := range optIns() {
		objects = append(objects, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: "MutatingAdmissionPolicyBinding"},
			ObjectMeta: b.metadata(name+o.suffix, o.description()),
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name, MatchResources: b.scope(o)},
		})
	}
	return objects
}

// maxExpression is how long an expression may be, as CEL's parser has it by default.
const maxExpression = 100_000

func (m *mutation) eachNodes() {
	for i, e := range m.t.EachFragments() {
		path := fmt.Sprintf("spec.forEachContainer[%d]", i)
		n := eachNode{where: "true", initContainers: e.InitContainers, add: m.fragment(e.Add, path+".add"), path: path}
		if e.Where != nil {
			n.where = m.rewrite(path+".where", e.Where).text
		}
		m.each = append(m.each, n)
	}
}

// supported refuses what is not expressed here.
func (m *mutation) supported() {
	for _, place := range []struct {
		n     *node
		known []string
	}{
		{m.pod.at("metadata"), []string{"annotations", "labels"}},
		{m.pod.at("spec"), []string{"initContainers", "containers", "volumes", "imagePullSecrets", "tolerations", "shareProcessNamespace"}},
	} {
		m.only(place.n, place.known)
	}
	for i := range m.each {
		m.only(&m.each[i].add, []string{"env", "envFrom", "volumeMounts"})
	}
	if len(m.each) > 1 {
		m.problem("spec.forEachContainer", "several entries could add two different things to one container, which cannot be compared here; join them into one")
	}
	if len(m.each) == 1 && m.each[0].add.get("envFrom") != nil && len(m.each[0].add.get("envFrom").items()) == 0 {
		m.problem(m.each[0].path+".add.envFrom", "a whole list from an expression cannot be added here")
	}
}

func (m *mutation) only(n *node, known []string) {
	if n == nil {
		return
	}
	for i, name := range n.names {
		if !slices.Contains(known, name) {
			m.problem(n.children[i].path, "this kind of policy cannot merge it with what the pod has; it can add %s", strings.Join(known, ", "))
		}
	}
}

// declare declares the variables that everything else reads.
func (m *mutation) declare() {
	m.variable("annotations", podAnnotations)
	m.variable("labels", podLabels)
	m.variable("initContainers", podInits)
	m.variable("containers", podContainers)
	m.variable("volumes", podVolumes)
	m.marks()
	m.variable("valid", all(m.parameters()...))
	m.fit = append(m.fit, "valid")
	if m.condition != "" {
		m.variable("condition", m.condition)
		m.fit = append(m.fit, "condition")
	}
	if len(m.t.Containers) > 0 {
		m.variable("injected", fmt.Sprintf("%q in variables.annotations", m.t.Annotation(templates.AnnotationInjected)))
		m.variable("podResources", "size(object.spec.?resources.orValue({})) > 0")
		m.variable("token", m.token())
	}
}

// token is the name of the volume that containers get where the ServiceAccount
// plugin would mount the API token, or "".
func (m *mutation) token() string {
	volume := quote(noTokenVolume)
	if m.t.Spec.ServiceAccountToken == templates.Inherit {
		user := fmt.Sprintf("(variables.initContainers + variables.containers).filter(x, !(x.name in [%s]))", strings.Join(m.brought(), ", "))
		declined := fmt.Sprintf("size(%[1]s) > 0 && %[1]s.all(x, x.?volumeMounts.orValue([]).exists(y, y.mountPath == %[2]q))", user, tokenPath)
		volume = fmt.Sprintf("(variables.volumes.map(x, x.name).filter(x, x.startsWith(\"kube-api-access-\")) + [%s ? %q : \"\"])[0]", declined, noTokenVolume)
	}
	return fmt.Sprintf("object.spec.?automountServiceAccountToken.orValue(true) ?\n  %s :\n  \"\"", volume)
}

// noTokenVolume is the empty volume that takes the place of the API token.
const noTokenVolume = "pillion-no-token"

// brought are the names of the containers of all templates.
func (m *mutation) brought() []string {
	var names []string
	for _, t := range m.set.Templates {
		for _, name := range t.Containers {
			if !slices.Contains(names, quote(name)) {
				names = append(names, quote(name))
			}
		}
	}
	return names
}

// expression is the whole patch: additions to containers that are there come
// before new ones, which shift their index.
func (m *mutation) expression() string {
	lists := slices.Clone(m.apps)
	if len(m.ops) > 0 {
		lists = append(lists, "[\n"+strings.Join(m.ops, ",\n")+"\n]")
	}
	return "!variables.fit ? [] :\n" + strings.Join(lists, " +\n")
}

// op adds an operation that is done where the condition holds.
func (m *mutation) op(condition, path, value string) {
	m.ops = append(m.ops, patch(condition, path, value))
}

// patch is an optional item of a list of operations; path is an expression.
func patch(condition, path, value string) string {
	return fmt.Sprintf("?(%s) ?\n  optional.of(JSONPatch{op: \"add\", path: %s, value: %s}) :\n  optional.none()", condition, path, value)
}

// metadataOps add annotations and labels, and the record of the injection.
func (m *mutation) metadataOps() {
	for _, kind := range []string{"annotations", "labels"} {
		entries := m.pod.at("metadata", kind)
		names, values := []string{}, []string{}
		if entries != nil {
			for i := range entries.children {
				names, values = append(names, entries.names[i]), append(values, entries.children[i].text)
			}
		}
		if kind == "annotations" {
			names, values = append(names, m.t.Annotation(templates.AnnotationInjected)), append(values, quote(m.t.Revision))
		}
		if len(names) == 0 {
			continue
		}
		m.op(fmt.Sprintf("!has(object.metadata.%s)", kind), quote("/metadata/"+kind), "{}")
		for i, name := range names {
			m.op(fmt.Sprintf("!(%q in variables.%s)", name, kind), quote("/metadata/"+kind+"/"+tree.Escape(name)), values[i])
		}
	}
}

// podOps add what stands in the pod's spec beside containers and volumes.
func (m *mutation) podOps() {
	spec := m.pod.get("spec")
	if share := spec.get("shareProcessNamespace"); share != nil && !share.zero {
		condition := "!has(object.spec.shareProcessNamespace)"
		m.op(fmt.Sprintf("%s && !(%s && object.spec.?hostPID.orValue(false))", condition, share.text), quote("/spec/shareProcessNamespace"), share.text)
	}
	for _, list := range []struct {
		name string
		t    reflect.Type
		same func(*node) string // as a condition on x
	}{
		{"imagePullSecrets", reflect.TypeFor[corev1.LocalObjectReference](), m.samePullSecret},
		{"tolerations", reflect.TypeFor[corev1.Toleration](), sameToleration},
	} {
		items := spec.get(list.name).items()
		if len(items) > 0 {
			m.op("!has(object.spec."+list.name+")", quote("/spec/"+list.name), "[]")
		}
		for i := range items {
			absent := fmt.Sprintf("!object.spec.?%s.orValue([]).exists(x, %s)", list.name, list.same(&items[i]))
			m.op(when(&items[i], absent), quote("/spec/"+list.name+"/-"), items[i].value(list.t, "Object.spec."+list.name))
		}
	}
}

func (m *mutation) samePullSecret(n *node) string {
	if n.get("name") == nil {
		m.problem(n.path, "a pull secret without a name cannot be compared with the pod's")
		return "false"
	}
	return `x.?name.orValue("") == ` + n.get("name").text
}

func sameToleration(n *node) string {
	var same []string
	for _, field := range []string{"key", "operator", "value", "effect"} {
		own := `""`
		if f := n.get(field); f != nil {
			own = f.text
		}
		same = append(same, fmt.Sprintf(`x.?%s.orValue("") == %s`, field, own))
	}
	if seconds := n.get("tolerationSeconds"); seconds != nil {
		return strings.Join(append(same, "has(x.tolerationSeconds) && x.tolerationSeconds == "+seconds.text), " && ")
	}
	return strings.Join(append(same, "!has(x.tolerationSeconds)"), " && ")
}

// when joins an item's own condition with another.
func when(n *node, condition string) string {
	if n.when == "" {
		return condition
	}
	return fmt.Sprintf("(%s) && %s", n.when, condition)
}

// volumeOps add the volumes.
func (m *mutation) volumeOps() {
	volumes := m.pod.at("spec", "volumes").items()
	if len(volumes) == 0 && len(m.t.Containers) == 0 {
		return
	}
	parent := "!has(object.spec.volumes)"
	if len(volumes) == 0 {
		parent += " && " + m.wantsNoToken()
	}
	m.op(parent, quote("/spec/volumes"), "[]")
	for i := range volumes {
		m.op(when(&volumes[i], fmt.Sprintf("!variables.volumes.exists(x, x.name == %s)", volumes[i].get("name").text)),
			quote("/spec/volumes/-"), volumes[i].value(reflect.TypeFor[corev1.Volume](), "Object.spec.volumes"))
	}
	if len(m.t.Containers) > 0 {
		m.op(fmt.Sprintf("%s && !variables.volumes.exists(x, x.name == %q)", m.wantsNoToken(), noTokenVolume), quote("/spec/volumes/-"),
			fmt.Sprintf("Object.spec.volumes{name: %q, emptyDir: Object.spec.volumes.emptyDir{}}", noTokenVolume))
	}
}

// wantsNoToken says whether a container is to be added that mounts the empty
// volume in the place of the token.
func (m *mutation) wantsNoToken() string {
	var added []string
	for _, c := range m.newContainers() {
		if !c.mountsToken {
			added = append(added, "variables."+c.variable)
		}
	}
	return fmt.Sprintf("variables.token == %q && (%s)", noTokenVolume, strings.Join(append(added, "false"), " || "))
}
