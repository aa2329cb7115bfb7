// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

func somePods() []string {
	return []string{
		`{"metadata":{},"spec":{"containers":[{"name":"web","image":"i"}]}}`,
		`{"metadata":{"labels":{"app":"web","a/b":"c"},"annotations":{"x":"1"}},"spec":{"runtimeClassName":"kata","hostNetwork":true,` +
			`"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"k"}],"priority":7,"os":{"name":"linux"},"securityContext":{"runAsUser":5},` +
			`"containers":[{"name":"web","image":"i","ports":[{"containerPort":80,"name":"http"}],"env":[{"name":"A","value":"b"}],` +
			`"resources":{"limits":{"cpu":"1"}},"readinessProbe":{"httpGet":{"port":80}}},{"name":"worker","image":"j"}],` +
			`"initContainers":[{"name":"init","image":"k","restartPolicy":"Always"}],"volumes":[{"name":"v","emptyDir":{}}]}}`,
		`{"metadata":{"labels":{"app":""}},"spec":{"containers":[{"name":"web","image":"i","resources":{}}],"securityContext":{}}}`,
	}
}

func someNamespaces() []request.Namespace {
	return []request.Namespace{
		{Name: "shop", Known: true},
		{Name: "bar", Known: true, Labels: map[string]string{"team": "blue"}, Annotations: map[string]string{"note": "n"}},
	}
}

const paramsTemplate = `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {
	params: [{name: "n", type: integer, default: 3}, {name: f, type: number, default: 0.5}, {name: b, type: boolean, default: true}, {name: s, default: "x\"y"},
		{name: o, optional: true}, {name: i, optional: true, type: integer}],
	variables: [{name: app, expression: "pod.metadata.labels[?'app'].orValue('none')"}, {name: names, expression: "pod.spec.containers.map(c, c.name)"},
		{name: all, expression: "variables.names.join(',') + params.s"}, {name: encoded, expression: "base64.encode(b'x')"}],
	pod: {spec: {containers: [{name: c, image: i, args: [%s]}]}}}}`

// TestRewrite checks that an expression has the same value in the API server, for pods that have
// the fields that it reads and for pods that lack them.
func TestRewrite(t *testing.T) {
	t.Parallel()
	env := environment(t)
	for _, e := range []string{
		`params.s`, `params.n + 1`, `params.f`, `params.b`, `params.s + string(params.n)`, `params.b ? 'yes' : 'no'`,
		`pod.metadata.labels.app`, `pod.metadata.labels['a/b']`, `pod.metadata.labels[?'app'].orValue('none')`, `pod.metadata.labels.?app.orValue('none')`,
		`pod.metadata.?labels.?app.orValue('none')`, `has(pod.metadata.labels)`, `has(pod.metadata.labels.app)`, `'app' in pod.metadata.labels`,
		`size(pod.metadata.labels)`, `pod.metadata.labels.exists(k, pod.metadata.labels[k] == 'c')`, `pod.metadata.annotations == {'x': '1'}`,
		`pod.spec.containers[0].name`, `pod.spec.containers.map(c, c.name).join(',')`, `pod.spec.initContainers.map(c, c.name).join(',')`,
		`has(pod.spec.initContainers)`, `pod.spec.?initContainers.optMap(l, l[0].name).orValue('none')`, `pod.?spec.?containers.hasValue()`,
		`pod.?spec.initContainers.hasValue()`, `pod.?spec.?hostNetwork.orValue(false)`,
		`size(pod.spec.volumes)`, `pod.spec.volumes.exists(v, has(v.emptyDir))`, `pod.spec.volumes.filter(v, has(v.emptyDir)).map(v, v.name).join('+')`,
		`pod.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && 'cpu' in c.resources.limits)`,
		`pod.spec.containers.exists(c, 'cpu' in c.resources.limits)`, `pod.spec.containers.all(c, c.ports.all(p, p.containerPort > 79))`,
		`pod.spec.containers[0].ports[0].name`, `pod.spec.containers[0].ports.map(p, p.containerPort)[0]`, `pod.spec.containers.exists_one(c, size(c.env) == 1)`,
		`has(pod.spec.runtimeClassName) ? pod.spec.runtimeClassName : 'none'`, `pod.spec.runtimeClassName`, `pod.spec.?runtimeClassName.orValue('none')`,
		`pod.spec.hostNetwork`, `has(pod.spec.hostNetwork)`, `!has(pod.spec.hostNetwork) || pod.spec.hostNetwork`, `pod.spec.priority * 2`,
		`pod.spec.os.name`, `pod.spec.?os.?name.orValue('linux')`, `has(pod.spec.os) && pod.spec.os.name == 'linux'`,
		`pod.spec.securityContext.runAsUser`, `has(pod.spec.securityContext.runAsUser)`, `pod.spec.nodeSelector[?'disk'].hasValue()`,
		`pod.spec.tolerations.exists(t, t.key == 'k')`, `pod.spec.containers[0].readinessProbe.httpGet.port == 80`, `pod.spec.containers[0].?readinessProbe.hasValue()`,
		`pod.spec.containers.map(c, c.env.map(e, e.name).join(':')).join(',')`, `pod.metadata.labels.?app.optMap(a, a + '!').orValue('?')`,
		`[pod.spec.containers[0].name, 'x', params.s].join(',')`, `{'a': pod.spec.containers[0].name, 'b': 'x'}['a']`, `pod.spec.containers[0].name in ['web', params.s]`,
		`ns.name`, `ns.labels[?'team'].orValue('none')`, `ns.annotations.note`, `has(ns.labels)`, `size(ns.annotations)`, `'team' in ns.labels`,
		`request.operation`, `request.username`, `request.dryRun`, `has(request.username)`,
		`'a,b'.split(',')[1]`, `'ABC'.lowerAscii().replace('b', 'x')`, `' x '.trim()`, `'web-1'.matches('^web-[0-9]+$')`, `'abc'.substring(1, 2)`,
		`sets.contains(['a', 'b'], pod.spec.containers.map(c, c.name))`, `pod.spec.containers.exists(c, sets.contains(['web'], [c.name]))`,
		`optional.of('x').orValue('y')`, `pod.spec.containers.map(c, optional.ofNonZeroValue(c.name).orValue('y'))[0]`, `strings.quote(params.s)`,
		`lists.range(3).map(i, string(i)).join(',')`, `['b', 'a', 'b'].distinct().sort().join(',')`, `[['a'], ['b']].flatten().join(',')`,
		`pod.spec.containers.map(c, c.name).sort().join(',')`, `pod.spec.containers.sortBy(c, c.image).map(c, c.name).join(',')`, `['a', 'b'].slice(0, 1)[0]`,
		`pod.spec.containers.exists(c, lists.range(2).exists(i, string(i) == c.name))`,
		`optional.ofNonZeroValue(pod.metadata.labels).hasValue()`, `optional.ofNonZeroValue(pod.metadata.annotations).hasValue()`, `optional.ofNonZeroValue(ns.labels).hasValue()`,
		`optional.ofNonZeroValue(pod.spec.containers[0].ports).hasValue()`, `optional.ofNonZeroValue(pod.spec.containers[0].resources).hasValue()`,
		`params.?o.orValue('none')`, `has(params.o)`, `params.?i.optMap(i, i + 1).orValue(5)`, `params.?n.orValue(5)`, `ns.?labels.?team.orValue('none')`,
		`variables.app`, `variables.all`, `variables.names[0]`, `pod.spec.containers.map(c, c.name + variables.app).join(',')`, `has(variables.app)`,
		`pod.spec.containers.map(c, size(c.name)).sum()`, `([0] + pod.spec.containers.map(c, size(c.ports))).max()`, `pod.spec.containers.map(c, c.name).min()`,
		`pod.spec.containers.map(c, c.name).indexOf('worker')`, `pod.spec.containers.map(c, c.name).lastIndexOf('web')`, `pod.spec.containers.map(c, c.name).isSorted()`,
		`pod.metadata.labels.all(k, v, k + v != 'appweb')`, `pod.metadata.labels.exists(k, v, v == params.s || k == 'a/b')`, `pod.spec.containers.existsOne(i, c, i == 1 && c.name == 'worker')`,
		`pod.spec.containers.transformList(i, c, i > 0, c.name + string(i)).join(',')`, `pod.metadata.labels.transformMap(k, v, v + '!')[?'app'].orValue('none')`,
		`pod.spec.containers.transformMapEntry(i, c, {c.name: string(i) + variables.app})['web']`, `pod.spec.containers.transformMapEntry(i, c, i > 0, {c.name: i}).size()`,
		`when(params.b, pod.spec.containers[0].name).orValue('none')`, `when(has(pod.spec.runtimeClassName), pod.spec.runtimeClassName).orValue('none')`,
		`pod.spec.containers.map(c, when(c.name == 'web', c.image).orValue('-')).join(',')`,
		`'$${X}' + params.s`, `pod.spec.containers.map(c, '$${' + c.name + '}').join(',')`, `when(params.b, '$${X}').orValue('')`,
		`int('5') + 1`, `double('5') > 4.5`, `duration('5m') < duration('1h')`, `type(params.s) == string`, `-params.n`, `params.n % 2 == 1`, `1 < 1.5`,
	} {
		tmpl := parse(t, fmt.Sprintf(paramsTemplate, fmt.Sprintf("'=${%s}'", strings.ReplaceAll(e, "'", "''"))))
		b := &builder{set: templates.NewSet([]*templates.Template{tmpl}), t: tmpl}
		pod := b.podFragment()
		b.declareInputs(false)
		if len(b.problems) > 0 {
			t.Errorf("%s: %v", e, b.problems)
			continue
		}
		for _, text := range somePods() {
			for _, ns := range someNamespaces() {
				sameValue(t, b, &pod, newWorld(t, env, text, ns), input(t, text, ns))
			}
		}
	}
}

func sameValue(t *testing.T, b *builder, pod *node, w world, in *cel.Input) {
	t.Helper()
	values, err := b.t.Values(nil, nil, &in.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	want, wantErr := b.t.Render(in, values)
	w.declare(t, b.variables)
	text := pod.get("spec", "containers").items()[0].get("args").items()[0].text
	got, gotErr := w.eval(t, text)
	if (wantErr == nil) != (gotErr == nil) {
		t.Errorf("%s\nin a template: %v\nhere: %v\nfor %s", text, wantErr, gotErr, in.Pod)
		return
	}
	if wantErr != nil {
		return
	}
	item := firstArg(&want)
	if g, ok := got.Value().(string); !ok || g != item {
		t.Errorf("%s is %v, want %q, for %s", text, got, item, in.Pod)
	}
}

func firstArg(n *jsontree.Node) string {
	return n.At("spec", "containers").Items()[0].Get("args").Items()[0].Text()
}

// TestNotRewritten checks that an expression is rejected if the API server lacks something that it
// uses, or has something different.
func TestNotRewritten(t *testing.T) {
	t.Parallel()
	for e, want := range map[string]string{
		`base64.encode(b'x')`:                                                "no function base64.encode",
		`['x'].map(x, base64.encode(bytes(x)))[0]`:                           "no function base64.encode",
		`json.marshal(pod.metadata.labels)`:                                  "no function json.marshal",
		`cel.bind(x, 'y', x)`:                                                "no function cel.bind",
		`string(math.greatest(1, 2))`:                                        "no function math.greatest",
		`string(math.abs(-1))`:                                               "no function math.abs",
		`regex.replace('a', 'a', 'b')`:                                       "no function regex.replace",
		`string(quantity('1'))`:                                              "no function string of a quantity",
		`string(cidr('10.0.0.0/8').isMask())`:                                "no function isMask",
		`'abc'.reverse()`:                                                    "no function reverse",
		`'%d'.format([1])`:                                                   "no function format",
		`pod.metadata.labels.map(k, k).join(',')`:                            "have no fixed order",
		`ns.labels.map(k, k).join(',')`:                                      "have no fixed order",
		`pod.spec.containers.map(object, object.name).join(',')`:             `named "object"`,
		`string(pod.metadata.?labels == optional.none()) + string(ns == ns)`: "ns as a whole",
		`pod.?spec.volumes.orValue([]).map(c, c.name).join(",")`:             "write .?volumes",
		`string(pod == pod)`:                                                 "pod or pod.spec as a whole",
		`string(pod.spec == pod.spec)`:                                       "pod or pod.spec as a whole",
	} {
		tmpl := parse(t, fmt.Sprintf(paramsTemplate, fmt.Sprintf("'=${%s}'", strings.ReplaceAll(e, "'", "''"))))
		b := &builder{set: templates.NewSet([]*templates.Template{tmpl}), t: tmpl}
		b.podFragment()
		if len(b.problems) != 1 || !strings.Contains(b.problems[0].Message, want) {
			t.Errorf("%s: %v, want %q", e, b.problems, want)
		}
	}
}

// TestMixedVariable checks that a variable that the API server would reject is reported, even if only an unused one
// reads it.
func TestMixedVariable(t *testing.T) {
	t.Parallel()
	tmpl := parse(t, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {
		variables: [{name: probe, expression: "{'tcpSocket': {'port': 80}, 'periodSeconds': 5}"}, {name: same, expression: variables.probe}], pod: {metadata: {annotations: {a: b}}}}}`)
	b := &builder{set: templates.NewSet([]*templates.Template{tmpl}), t: tmpl}
	if b.templateVariables(); len(b.problems) != 1 || !strings.Contains(b.problems[0].Message, "values of different types") {
		t.Errorf("%v", b.problems)
	}
}

// TestRewriteKubernetes checks that the API server's own functions stay unchanged.
func TestRewriteKubernetes(t *testing.T) {
	t.Parallel()
	for _, e := range []string{
		`string(quantity("1Gi").isLessThan(quantity("2Gi")))`, `url("https://x").getHost()`, `string(semver("1.2.3").major())`,
		`string(ip("10.0.0.1").isLoopback())`, `string(ip.isCanonical("::1"))`, `string(cidr("10.0.0.0/8").containsIP("10.0.0.1"))`, `"ab".find("b")`, `"ab".findAll("b", 1)[0]`,
	} {
		tmpl := parse(t, fmt.Sprintf(paramsTemplate, fmt.Sprintf("'=${%s}'", e)))
		b := &builder{set: templates.NewSet([]*templates.Template{tmpl}), t: tmpl}
		pod := b.podFragment()
		if text := pod.get("spec", "containers").items()[0].get("args").items()[0].text; len(b.problems) > 0 || !strings.Contains(text, e) {
			t.Errorf("%s is %s: %v", e, text, b.problems)
		}
	}
}
