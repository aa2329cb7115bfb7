// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Sets makes random templates that read what templates add, and pods for them.
type Sets struct {
	*rand.Rand
	// Systems is set if templates may be for any operating system, and pods on Windows.
	Systems bool
}

// NewSets returns one with its own random numbers. One seed of five has all operating systems: the templates of most pods on Windows
// are not for them, and little else happens.
func NewSets(seed, stream uint64) *Sets {
	return &Sets{Rand: rand.New(rand.NewPCG(seed, stream)), Systems: seed%5 == 4}
}

func (g *Sets) pickString(choices ...string) string { return choices[g.IntN(len(choices))] }

func (g *Sets) oneIn(n int) bool { return g.IntN(n) == 0 }

// maybeText returns the string in one of n cases.
func (g *Sets) maybeText(n int, text func() string) []string {
	if g.oneIn(n) {
		return []string{text()}
	}
	return nil
}

func (g *Sets) boolExpression(each bool) string {
	all := []string{
		"size(pod.spec.containers) == 1", "size(pod.spec.containers) < 3", "size(pod.spec.volumes) > 0", "size(pod.spec.initContainers) == 0",
		"pod.spec.containers.exists(c, c.name == 'c0')", "pod.spec.containers.exists(c, c.name == 'k1')", "pod.spec.containers.exists(c, c.name == 'k2')",
		"pod.spec.containers.all(c, c.image != 's')", "pod.spec.containers.exists(c, c.env.exists(e, e.name == 'E0'))",
		"pod.spec.containers.exists(c, c.ports.exists(p, p.containerPort == 80))", "pod.spec.containers.all(c, size(c.volumeMounts) < 2)",
		"has(pod.spec.securityContext.fsGroup)", "pod.metadata.labels[?'app'].hasValue()", "pod.metadata.labels.exists(k, k.startsWith('t'))",
		"'t0.pillion.dev/injected' in pod.metadata.annotations", "pod.metadata.annotations.exists(k, k.startsWith('x'))",
		"pod.metadata.annotations[?'x.example/t1'].orValue('') == 'y'", "pod.metadata.annotations[?'x.example/t0'].hasValue()",
		"pod.spec.containers.exists(c, c.env.exists(e, e.value == 'y'))", "pod.spec.volumes.exists(v, has(v.emptyDir.sizeLimit))",
		"pod.spec.volumes.exists(v, has(v.configMap.defaultMode))", "pod.spec.containers.all(c, !has(c.securityContext))", "size(pod.spec.tolerations) == 0",
		"pod.spec.volumes.exists(v, v.name == 'shared')", "params.b", "'role' in serviceAccount.annotations", "serviceAccount.name == 'default'", "pod.spec.volumes.all(v, pod.spec.volumes.exists(w, w.name == v.name))",
		"pod.metadata.labels.exists(k, v, k == v)", "pod.spec.containers.all(i, c, i == 0 || c.name != 'app')", "pod.spec.containers.map(c, c.name).indexOf('app') == 0",
		"pod.metadata.annotations.existsOne(k, v, v == 'y')", "pod.spec.containers.map(c, size(c.ports)).sum() > 1",
	}
	if each {
		all = append(all, "container.name == 'app'", "size(container.env) == 0", "container.env.exists(e, e.name == 'E1')",
			"has(container.securityContext)", "size(container.volumeMounts) < 2", "size(container.ports) == 0")
	}
	s := g.pickString(all...)
	if g.oneIn(4) {
		return "!(" + s + ")"
	}
	return s
}

func (g *Sets) stringExpression(each bool) string {
	all := []string{
		"fix", "fix", "fix", "fix", "fix", "${string(size(pod.spec.containers))}", "${pod.metadata.labels[?'app'].orValue('none')}", "${pod.metadata.labels['app']}", "${params.p}",
		"${params.u > 0.0 ? 'y' : 'n'}", "${params.q}", "${params.d}", "${string(duration(params.d))}",
		"${params.l.join('.')}", "${params.f[?'a'].orValue('none')}", "${json.marshal(params.j)}", "${params.?o}", "${params.a}", "${params.h.map(k, k + params.h[k]).join('.')}",
		"n-${ns.name}", "${serviceAccount.annotations[?'role'].orValue(serviceAccount.name)}", "${pod.spec.containers.map(c, c.name).join(',')}", "v${string(size(pod.spec.volumes))}",
		"${pod.metadata.annotations[?'x.example/t0'].orValue('none')}", "${pod.metadata.annotations[?'x.example/t2'].orValue('y')}", "a-${pod.metadata.annotations[?'x.example/t1'].orValue('fix')}", g.valuesExpression(),
		"${pod.spec.containers.map(c, c.env.map(e, e.name).join('.')).join(',')}", "${pod.spec.volumes.map(v, v.name).join(',')}", "${" + g.boolExpression(each) + " ? 'y' : 'n'}",
		"${pod.metadata.labels.transformList(k, v, k + v).join('.')}", "${json.marshal(pod.metadata.labels.transformMap(k, v, v + 'x').merge(params.f))}", "${hash.sha256(pod.metadata.labels[?'app'].orValue('x')).substring(0, 8)}",
		"${json.marshal(pod.spec.containers.transformMapEntry(i, c, {c.name: i}))}", "${string(([0] + pod.spec.containers.map(c, c.ports.map(p, p.containerPort)).flatten()).max())}",
	}
	if each {
		all = append(all, "${container.name}", "${container.image}", "${string(size(container.env))}")
	}
	return strconv.Quote(g.pickString(all...))
}

// valuesExpression returns an expression that reads values with all that an API server makes of them.
func (g *Sets) valuesExpression() string {
	return g.pickString("${json.marshal(pod.spec.containers.map(c, c.resources))}", "${json.marshal(pod.spec.containers.map(c, c.resources.?requests))}",
		"${json.marshal(pod.spec.volumes.map(v, v.?configMap))}", "${json.marshal(pod.spec.volumes)}", "${json.marshal(pod.spec.containers.map(c, c.?lifecycle))}",
		"${json.marshal(pod.spec.containers.map(c, c.ports))}", "${json.marshal(pod.spec.containers.map(c, c.env))}",
		"${pod.spec.containers.map(c, string(c.resources.?limits[?'cpu'].orValue('-'))).join(',')}",
		"${pod.spec.volumes.map(v, string(v.?emptyDir.?sizeLimit.orValue('-'))).join(',')}")
}

// quantityJSON returns a quantity in JSON. An API server stores most of these in another form.
func (g *Sets) quantityJSON() string {
	return g.pickString(`"100m"`, `"0"`, "0.1", `"100.5m"`, "1", "0.5", `"1024Mi"`, `"0.5Gi"`, `"0.1Ki"`, `"1e3"`, `"2000"`, `"+1"`, `"1000000u"`, `"01.50"`)
}

// whenCondition returns a condition for an item in one of n cases.
func (g *Sets) whenCondition(n int, each bool) string {
	return strings.Join(g.maybeText(n, func() string { return `"${when}": ` + strconv.Quote(g.boolExpression(each)) + ", " }), "")
}

func (g *Sets) envItem(name string, each bool) string {
	ifSet := ""
	if each && g.oneIn(3) {
		ifSet = `, "${ifSet}": ` + g.pickString("keep", "conflict", "{append: E3}", "{append: E0}")
	}
	value := "value: " + g.stringExpression(each)
	if g.oneIn(6) {
		value = g.pickString(`value: ""`, "valueFrom: {fieldRef: {fieldPath: metadata.name}}", "value: \"${params.?o}\"", "value: \"${when("+g.boolExpression(each)+", 'y')}\"")
	}
	return "{" + g.whenCondition(4, each) + g.nameField(6, name, "each", each) + ", " + value + ifSet + "}"
}

// nameField returns a name, which in one of n cases a ${forEach} with the variable v makes.
func (g *Sets) nameField(n int, name, v string, each bool) string {
	if !g.oneIn(n) {
		return "name: " + name
	}
	lists := []string{
		"params.l", "params.h.map(k, k)",
		"['a', 'b']", "params.p.split('')", "[params.p]", "params.b ? ['a'] : []", "pod.spec.containers.map(c, c.name)", "pod.spec.volumes.map(v, v.name)",
		"pod.metadata.labels.map(k, k)", "pod.spec.containers.filter(c, c.name == 'app').map(c, c.env).flatten().map(e, e.name.lowerAscii())",
	}
	if each {
		lists = append(lists, "container.env.map(e, e.name)")
	}
	if g.oneIn(4) { // with the keys of a map, or the indexes of a list
		lists = append(lists, "params.f", "params.h", "params.j", "{'b': 1, 'a': 2}", "pod.metadata.labels", "ns.labels")
		expression := g.pickString(lists...)
		return fmt.Sprintf(`"${forEach}": {"%s, value": %q}, name: "%s-${string(%s)}"`, v, expression, name, v)
	}
	return fmt.Sprintf(`"${forEach}": {%s: %q}, name: "%s-${%s}"`, v, g.pickString(lists...), name, v)
}

func (g *Sets) containerItem(name, volume string) string {
	named := g.nameField(6, name, "m", false)
	if g.oneIn(8) {
		named = fmt.Sprintf(`name: "%s-${%s}"`, name, g.pickString("ns.name", "params.p", "pod.spec.containers[0].name"))
	}
	fields := []string{named, "image: " + g.pickString("s", "s", "s", g.stringExpression(false))}
	fields = append(fields, g.maybeText(3, func() string {
		return "args: [" + g.stringExpression(false) + g.pickString("", "", `, "${params.l}"`, `, "${params.b ? ['b'] : []}", x`, `, "${pod.spec.volumes.map(v, v.name)}"`) + "]"
	})...)
	fields = append(fields, g.maybeText(2, func() string {
		return "env: " + g.pickString("["+g.envItem("E0", false)+", "+g.envItem("X", false)+"]", g.listExpression("pod.spec.containers[0].env", "env"), "["+g.listExpression("pod.spec.containers[0].env", "env")+", "+g.envItem("X", false)+"]")
	})...)
	fields = append(fields, g.maybeText(3, func() string {
		return "ports: " + g.pickString("[{containerPort: "+g.pickString("80", "81")+"}]", g.listExpression("pod.spec.containers[0].ports", "ports"), "[{containerPort: 99}, "+g.listExpression("pod.spec.containers[0].ports", "ports")+"]")
	})...)
	fields = append(fields, g.maybeText(3, func() string {
		return "securityContext: " + g.pickString("{runAsNonRoot: true}", g.objectExpression("securityContext"), `"${{'runAsUser': params.?o.orValue(7)}}"`, `"${{'runAsNonRoot': true}.merge({'runAsNonRoot': params.b, 'privileged': false})}"`, jsonObject)
	})...)
	fields = append(fields, g.maybeText(5, func() string {
		return "resources: " + g.pickString(g.objectExpression("resources"), jsonObject, `"${{'limits': {'memory': '1Gi', 'cpu': string(size(pod.spec.containers))}}}"`)
	})...)
	lifecycle := g.maybeText(6, func() string { return lifecycleField })
	fields = append(fields, g.maybeText(4, func() string {
		return "volumeMounts: " + g.pickString("["+g.mountItem(volume, "/w")+"]", g.listExpression("pod.spec.containers[0].volumeMounts", "volumeMounts"), "["+g.mountItem(volume, "/w")+", "+g.listExpression("pod.spec.containers[0].volumeMounts", "volumeMounts")+"]")
	})...)
	return "{" + g.whenCondition(6, false) + strings.Join(fields, ", ") + strings.Join(lifecycle, "") + "}"
}

// lifecycleField is a field at the end of a container.
const lifecycleField = ", lifecycle: {stopSignal: SIGTERM}"

// jsonObject is an expression for an object that an annotation may set.
const jsonObject = `"${type(params.j) == map ? params.j.?o.orValue({}) : {}}"`

// objectExpression returns an expression for a whole object of the pod's first container, which it may not have. It is never of the
// container that a template brings.
func (g *Sets) objectExpression(field string) string {
	return strconv.Quote(g.pickString("${pod.spec.containers[0].?"+field+"}", "${pod.spec.containers[0].?"+field+"}", "${pod.spec.containers[0].?"+field+"}",
		"${params.b ? pod.spec.containers[0].?"+field+" : optional.none()}", "${when(has(pod.spec.containers[0]."+field+"), pod.spec.containers[0]."+field+")}", "${pod.spec.containers.filter(c, has(c."+field+"))[?0].?"+field+"}"))
}

// listExpression returns an expression for a whole list of variables, ports or mounts.
func (g *Sets) listExpression(from, field string) string {
	made := map[string][]string{
		"env":          {"${params.h.map(k, {'name': 'H' + k, 'value': params.h[k]})}", "${params.f.merge(params.h).transformList(k, v, {'name': 'M' + k, 'value': v})}", "${params.l.map(i, {'name': 'L' + i, 'value': ns.name})}", "${" + from + ".filter(e, has(e.value))}"},
		"ports":        {"${lists.range(size(pod.spec.containers)).map(i, {'containerPort': 7000 + i})}", "${params.?o.hasValue() ? [{'containerPort': 9000, 'name': 'o'}] : []}", "${" + from + ".filter(p, p.containerPort != 80)}"},
		"volumeMounts": {"${pod.spec.volumes.map(v, {'name': v.name, 'mountPath': '/all/' + v.name})}", "${params.h.map(k, {'name': params.p, 'mountPath': '/' + k, 'readOnly': true})}", "${" + from + ".filter(m, m.readOnly)}"},
	}[field]
	return strconv.Quote(g.pickString(append(made, "${"+from+"}")...))
}

// mountItem returns a mount of the template's volume, or of one of the pod.
func (g *Sets) mountItem(volume, path string) string {
	if g.oneIn(4) {
		volume = strconv.Quote(g.pickString("${'w'}", "${'"+volume+"'}", "${'shared'}", "${params.p}", "${pod.spec.volumes[0].name}", "${pod.spec.volumes.filter(v, v.name != 'shared')[0].name}"))
	}
	if g.oneIn(8) {
		path += strconv.Itoa(g.IntN(2)) + "-${string(size(pod.spec.volumes))}"
	}
	return "{name: " + volume + ", mountPath: " + strconv.Quote(g.pickString("/v", path)) + "}"
}

func (g *Sets) volumeItem(name string) string {
	source := g.pickString("emptyDir: {}", "emptyDir: {}", "emptyDir: {}", "emptyDir: {mode: 511}", "configMap: {name: conf}", "emptyDir: {sizeLimit: "+g.quantityJSON()+"}",
		`configMap: {name: "c${string(size(pod.spec.containers))}"}`, `emptyDir: {sizeLimit: "${size(pod.spec.containers) == 1 ? '1Gi' : '2Gi'}"}`)
	if g.oneIn(16) { // one of two, both or none
		return "{" + g.whenCondition(1, false) + "name: " + name + ", " + source + "}, {" + g.whenCondition(1, false) + "name: " + name + ", configMap: {name: conf}}"
	}
	if g.oneIn(12) {
		return "{name: " + name + ", " + source + `}, "${params.f.map(k, {'name': k, 'emptyDir': {}})}", "${type(params.j) == map ? [params.j.?v].unwrapOpt() : []}"`
	}
	if g.oneIn(12) {
		return "{" + g.whenCondition(10, false) + "name: " + name + ", " + source + "}, {name: \"${" + g.pickString("params.p", "ns.name", "pod.spec.containers[0].name") + "}\", emptyDir: {}}"
	}
	if g.oneIn(8) { // a volume with that name is needed for the mounts
		return "{" + g.whenCondition(10, false) + "name: " + name + ", " + source + "}, {" + g.nameField(1, name, "m", false) + ", " + source + "}"
	}
	return "{" + g.whenCondition(10, false) + "name: " + name + ", " + source + "}"
}

func (g *Sets) forEachContainer(volume string, anyOS bool) string {
	var add []string
	add = append(add, g.maybeText(2, func() string {
		return "env: [" + g.envItem(g.pickString("E0", "E1", "E2"), true) + g.pickString("", "", `, "${params.l.map(i, {'name': 'L' + i, 'value': container.name})}"`) + "]"
	})...)
	add = append(add, g.maybeText(3, func() string {
		return "volumeMounts: " + g.pickString("["+g.mountItem(volume, "/x")+"]", "["+g.mountItem(volume, "/x")+"]", g.listExpression("container.volumeMounts", "volumeMounts"))
	})...)
	if !anyOS { // pods on Windows cannot have it
		add = append(add, g.maybeText(4, func() string { return "securityContext: {readOnlyRootFilesystem: true}" })...)
	}
	add = append(add, g.maybeText(4, func() string {
		return "resources: {" + g.pickString("requests", "requests", "limits") + ": {cpu: " + g.pickString(g.quantityJSON(), `"${params.q}"`) + "}}"
	})...)
	add = append(add, "ports: [{containerPort: 9"+g.pickString("0", "1")+"}]")
	where := strings.Join(g.maybeText(3, func() string { return "where: " + strconv.Quote(g.boolExpression(true)) + ", " }), "")
	return "forEachContainer: [{" + where + "initContainers: " + g.pickString("true", "false") + ", add: {" + strings.Join(add, ", ") + "}}]"
}

func (g *Sets) placeValue() string {
	return g.pickString("First", "Last", "{after: app}", "{before: app}", "{after: i}", "{before: k9}", "{before: c1}", "{before: k0}", "{after: k1}", `"${size(pod.spec.volumes) > 1 ? 'First' : 'Last'}"`,
		"[{after: k9}, First]", "[{before: k1}, {after: app}, Last]", "[{after: gone}, {before: i}]", `[{after: k9}, "${params.b ? 'First' : 'Last'}"]`)
}

func (g *Sets) placementField() string {
	return "placement: {initContainers: " + g.placeValue() + ", containers: " + g.placeValue() + "}"
}

// otherParameters returns parameters of other types, and from annotations of other products.
func (g *Sets) otherParameters() string {
	by := g.pickString("", "", ", overridableBy: [Pod]", ", overridableBy: [Pod, ServiceAccount]")
	return "{name: l, type: list, default: " + g.pickString(`"a,b"`, `"a,b"`, `""`, `" c0 ,, app "`) + g.pickString("", ", maxItems: 4", `, items: {pattern: "[a-z0-9]+", maxLength: 4}`) + by + "}, " +
		"{name: f, type: map, default: " + g.pickString(`"a=1"`, `"a=1"`, `""`, `"b=2,3,a=x=y"`) + g.pickString("", ", items: {maxLength: 5}") + "}, " +
		"{name: j, type: json, default: " + g.pickString(`"{}"`, `"[]"`, `'{"b": [1, {"a": null}], "a": 0.5}'`) + "}, " +
		"{name: u, type: number, default: 0.5" + g.pickString("", ", maximum: 10") + "}, {name: q, type: quantity, default: " + g.pickString("100m", "0.5Gi") + "}, {name: d, type: duration, default: 90s}, " +
		"{name: o, type: integer, optional: true" + g.pickString("", ", minimum: 5") + by + "}, {name: a, annotation: x.example/t1, default: z}, " +
		"{name: h, prefix: " + g.pickString("x.example/h-, items: {maxLength: 3}", "x.example/h-, maxItems: 2", "x.example/h-", "x.example/") + "}"
}

// Template returns the spec of the template with a number, in YAML.
func (g *Sets) Template(i int) string {
	volume := g.pickString(fmt.Sprint("v", i), fmt.Sprint("v", i), "shared")
	fields := []string{"default: true", "params: [{name: p, type: string, default: d" + g.pickString("", "", ", overridableBy: [Pod, ServiceAccount, Namespace]") + "}, {name: b, type: boolean, default: true}, " + g.otherParameters() + "]"}
	fields = append(fields, g.pickString("required: true", "required: true", "validate: {mode: Deny, protect: [all]}", "validate: {mode: Deny, protect: [image]}",
		"validate: {mode: Deny, protect: [args, env]}",
		"validate: {mode: Warn, protect: [image, securityContext]}", "order: -1"))
	condition := strings.Join(g.maybeText(3, func() string { return ", condition: " + strconv.Quote(g.boolExpression(false)) }), "")
	anyOS := g.Systems && !g.oneIn(3)
	system := map[bool]string{true: ", os: any"}[anyOS]
	fields = append(fields, "match: {hostNetwork: true"+system+condition+"}")
	fields = append(fields, g.maybeText(6, func() string { return "serviceAccountToken: None" })...)
	fields = append(fields, g.maybeText(2, func() string { return g.forEachContainer(volume, anyOS) })...)
	spec := []string{"volumes: [" + g.volumeItem(volume) + "]"}
	sidecar := g.containerItem(fmt.Sprint("k", i), volume)
	second := strings.Join(g.maybeText(3, func() string { return ", " + g.containerItem(fmt.Sprint("l", i), volume) }), "")
	if g.oneIn(2) {
		spec = append(spec, "containers: ["+sidecar+second+"]")
	} else {
		restart := g.pickString(", restartPolicy: Always", "")
		withoutLifecycle := strings.NewReplacer(lifecycleField, "") // only sidecars have one
		if second = withoutLifecycle.Replace(second); restart == "" {
			sidecar = withoutLifecycle.Replace(sidecar)
		}
		spec = append(spec, "initContainers: ["+strings.TrimSuffix(sidecar, "}")+restart+"}"+second+"]")
	}
	fields = append(fields, g.maybeText(3, g.placementField)...)
	if !anyOS { // pods on Windows cannot have it
		spec = append(spec, g.maybeText(4, func() string { return "securityContext: {fsGroup: 5}" })...)
	}
	spec = append(spec, g.maybeText(6, func() string { return "tolerations: [{key: " + g.stringExpression(false) + ", operator: Exists}]" })...)
	meta := strings.Join(g.maybeText(3, func() string {
		return fmt.Sprintf("metadata: {labels: {t%d.pillion.dev/l: x}, annotations: {x.example/t%d: %s}}, ", i, i, g.stringExpression(false))
	}), "")
	all := strings.Join(append(fields, "pod: {"+meta+"spec: {"+strings.Join(spec, ", ")+"}}"), ", ")
	if g.oneIn(3) {
		return g.Named(all)
	}
	return all
}

// Replacing returns templates as from Template in which later ones replace the first one, which has the number first.
// Choice decides which, in which share of the workloads, and whether they have its containers.
func Replacing(specs []string, first int, choice uint64) []string {
	const required = "required: true, "
	specs = slices.Clone(specs)
	for i := 1; i < len(specs); i++ {
		spec := specs[i]
		if choice>>i&1 == 1 && i < len(specs)-1 {
			continue
		}
		if is := strings.Contains(spec, required); is != strings.Contains(specs[0], required) {
			if spec = strings.Replace(spec, required, "", 1); !is {
				spec = required + spec
			}
		}
		if choice>>(i+2)&1 == 1 {
			spec = strings.NewReplacer(fmt.Sprint("name: k", first+i), fmt.Sprint("name: k", first), fmt.Sprint("name: l", first+i), fmt.Sprint("name: l", first)).Replace(spec)
		}
		specs[i] = fmt.Sprintf("replaces: t%d, share: %d, %s", first, 100-choice/32%4*33, spec)
	}
	return specs
}

// written are the expressions in a template: ${...} and conditions.
var written = regexp.MustCompile(`\$\{[^{}"]+\}|(condition: |where: |"\$\{when\}": )"[^"]+"`)

// Named returns the template with some of its expressions as variables, which changes nothing.
func (g *Sets) Named(template string) string {
	var variables []string
	short := written.ReplaceAllStringFunc(template, func(text string) string {
		begin, rest, end := "${", strings.TrimPrefix(text, "${"), "}"
		if i := strings.LastIndex(text, `: "`); i >= 0 && strings.HasSuffix(text, `"`) {
			begin, rest, end = text[:i+3], text[i+3:], `"`
		}
		expression := strings.TrimSuffix(rest, end)
		if slices.Contains([]string{"when", "forEach", "ifSet", "m", "each", "string(m)", "string(each)"}, expression) || strings.Contains(expression, "container.") || g.oneIn(4) {
			return text
		}
		name := fmt.Sprint("x", len(variables))
		if g.oneIn(4) { // through another variable
			variables = append(variables, fmt.Sprintf("{name: %sy, expression: %q}", name, expression))
			expression = "variables." + name + "y"
		}
		variables = append(variables, fmt.Sprintf("{name: %s, expression: %q}", name, expression))
		return begin + "variables." + name + end
	})
	return "variables: [" + strings.Join(variables, ", ") + "], " + short
}

// Pod returns a pod in JSON. If own is true, it may have a container with a template's name.
func (g *Sets) Pod(own bool) string {
	var containers []string
	onWindows := g.Systems && g.oneIn(3)
	for i := range 1 + g.IntN(3) {
		fields := []string{fmt.Sprintf(`"name":"%s","image":"img"`, []string{"app", "c0", "c1"}[i])}
		fields = append(fields, g.maybeText(3, func() string {
			return `"env":[{"name":"` + g.pickString("E0", "E1") + `","value":"` + g.pickString("x", "fix") + `"}]`
		})...)
		fields = append(fields, g.maybeText(4, func() string { return `"ports":[{"containerPort":80}]` })...)
		if !onWindows {
			fields = append(fields, g.maybeText(4, func() string { return `"securityContext":{"runAsUser":0}` })...)
		}
		fields = append(fields, g.maybeText(4, func() string {
			return `"volumeMounts":[{"name":"` + g.pickString("w", "shared") + `","mountPath":"/own"` + g.pickString("", `,"readOnly":true`) + "}]"
		})...)
		fields = append(fields, g.maybeText(5, func() string { return `"resources":{"limits":{"cpu":` + g.quantityJSON() + `}}` })...)
		containers = append(containers, "{"+strings.Join(fields, ",")+"}")
	}
	annotations := g.pickString("", "", "", `"t0.pillion.dev/customize":"true"`, `"x.example/t1":"fix"`, `"x.example/t0":"`+g.pickString("y", "n", "none", "1", "2", "n-shop")+`"`, `"t1.pillion.dev/p":"q"`,
		`"t0.pillion.dev/l":"b, c,,b"`, `"t0.pillion.dev/o":"7","x.example/h-b":"1","x.example/h-a":"2"`, `"t1.pillion.dev/j":"[1, {b: 2, a: 1}]","t0.pillion.dev/f":"a=x,y"`)
	if annotations == "" && g.oneIn(9) {
		annotations = g.parameterAnnotations()
	}
	containers = append(containers, g.maybeText(8, func() string {
		if !own {
			return `{"name":"c2"}`
		}
		return `{"name":"k0"` + g.pickString("", `,"image":"s"`, `,"image":"img"`) + g.pickString("", "", `,"command":["sleep"]`, `,"env":[{"name":"E0","value":"fix"}]`) + "}"
	})...)
	var spec []string
	spec = append(spec, g.maybeText(2, func() string { return `"initContainers":[{"name":"i","image":"z"}]` })...)
	if onWindows {
		spec = append(spec, g.pickString(`"os":{"name":"windows"}`, `"nodeSelector":{"kubernetes.io/os":"windows"}`))
	} else {
		spec = append(spec, g.pickString(`"hostPID":false`, `"securityContext":{"runAsUser":0}`, `"restartPolicy":"Never"`, `"hostNetwork":true`, `"resources":{"limits":{"cpu":`+g.quantityJSON()+`}}`, `"securityContext":{"fsGroup":7}`))
	}
	spec = append(spec, g.maybeText(4, func() string {
		return `"volumes":[{"name":` + g.pickString(`"shared","hostPath":{"path":"/x"}`, `"v0","configMap":{"name":"other"}`, `"w"`) + "}]"
	})...)
	if g.oneIn(60) { // near a limit
		spec = append(spec[:min(len(spec), 1)], `"volumes":[`+manyVolumes(140+g.IntN(9))+"]")
	}
	metadata := `"metadata":{"name":"web","labels":{` + g.pickString("", `"app":"web"`) + `},"annotations":{` + annotations + `}},`
	if annotations == "" && g.oneIn(3) {
		metadata = g.pickString("", `"metadata":{},`, `"metadata":{"name":"web"},`)
	}
	return `{` + metadata + `"spec":{"containers":[` +
		strings.Join(containers, ",") + "]," + strings.Join(spec, ",") + "}}"
}

// parameterAnnotations returns annotations that set parameters, some to values that are not allowed.
func (g *Sets) parameterAnnotations() string {
	return g.pickString(
		`"t0.pillion.dev/l":"`+g.pickString("", "a", "app,c0", "0,1,2,3", "A b", "a,a")+`"`, `"x.example/h-`+g.pickString("a", "C", "", "a.b_c")+`":"`+g.pickString("", "1", "fix", "longer")+`","x.example/h-b":"y"`,
		`"t0.pillion.dev/j":"`+g.pickString("{a: [", "5", "{}", "{x: &y 1}", "{o: {runAsUser: 7}}", "{o: {limits: {cpu: 1}}}", "{o: {x: 1}}", "{v: {name: j, emptyDir: {}}}", "{v: {name: j, emptyDir: {}, hostPath: {path: /x}}}")+`"`, `"t0.pillion.dev/o":"`+g.pickString("4", "x", "")+`","t0.pillion.dev/f":"`+g.pickString("", "a", "a=1,a=2", "c=longer")+`"`,
		`"t0.pillion.dev/u":"`+g.pickString("2e1", ".5", "x", "-1")+`","t1.pillion.dev/q":"`+g.pickString("1", "100.5m", "0.1Ki", "x")+`","t0.pillion.dev/d":"`+g.pickString("1h", "90", "0")+`"`,
	)
}

func manyVolumes(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"name":"w%d","emptyDir":{}}`, i)
	}
	return strings.Join(all, ",")
}
