// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// construct is a construct of the template format, and another way to give a pod the same.
type construct struct {
	name            string // of the benchmark
	what, otherwise string // for readers
	with, without   variant
}

// variant is the spec of a template, and annotations of the pod.
type variant struct {
	spec        string // in YAML
	annotations map[string]string
}

// constructs returns the rows of the table about constructs.
func constructs() []construct {
	const service = "${pod.metadata.labels[?'app'].orValue('unknown')}"
	spec := func(text string) variant { return variant{spec: text} }
	constant := spec(withContainer("", four("value: web")))
	const items = `env: [{"${forEach}": {m: "params.p.split(',')"}, name: "E${m}", value: web}]`
	return append([]construct{
		{"expression", "four strings with `${...}`", "constants", spec(withContainer("", four(`value: "`+service+`"`))), constant},
		{
			"variable", "a variable that four strings read", "four strings with `${...}`",
			spec(withContainer(fmt.Sprintf("variables: [{name: v, expression: %q}], ", service[2:len(service)-1]), four(`value: "${variables.v}"`))), spec(withContainer("", four(`value: "`+service+`"`))),
		},
		{"when", "four `\"${when}\"`", "constants", spec(withContainer("", four(`value: web, "${when}": "ns.name != 'x'"`))), constant},
		{"optional", "four optional strings", "constants", spec(withContainer("", four(`value: "${pod.metadata.labels[?'app']}"`))), constant},
		{"when-value", "four `when(condition, value)`", "constants", spec(withContainer("", four(`value: "${when(ns.name != 'x', 'web')}"`))), constant},
		{"sha256", "four `hash.sha256`", "constants", spec(withContainer("", four(`value: "${hash.sha256(ns.name) == '' ? 'none' : 'web'}"`))), constant},
		{"sum", "four `sum` of a list that `map` makes", "constants", spec(withContainer("", four(`value: "${pod.spec.containers.map(c, size(c.env)).sum() < 0 ? 'none' : 'web'}"`))), constant},
		{"merge", "JSON of the labels by `merge` with themselves", "JSON of the labels", spec(withContainer("", `args: ["${json.marshal(pod.metadata.labels.merge(pod.metadata.labels))}"]`)), spec(withContainer("", `args: ["${json.marshal(pod.metadata.labels)}"]`))},
		{"transformMap", "JSON of the labels by `transformMap`", "JSON of the labels", spec(withContainer("", `args: ["${json.marshal(pod.metadata.labels.transformMap(k, v, v))}"]`)), spec(withContainer("", `args: ["${json.marshal(pod.metadata.labels)}"]`))},
		{"forEach", "`\"${forEach}\"`: four values of a default", "four items", spec(withContainer("params: [{name: p, default: '0,1,2,3'}], ", items)), constant},
		{"forEach-annotation", "`\"${forEach}\"`: four values of an annotation", "four items", variant{withContainer(parameter(""), items), own("0,1,2,3")}, constant},
		{"forEach-map", "`\"${forEach}\"`: the keys and values of a `map` of an annotation", "`params.p.map(k, k)`, and `params.p[k]` as the value", variant{withContainer(parameter("type: map"), loopOver(`"k, v"`, "params.p", "${v}")), own("k=a,l=b,m=c,n=d")}, variant{withContainer(parameter("type: map"), loopOver("k", "params.p.map(k, k)", "${params.p[k]}")), own("k=a,l=b,m=c,n=d")}},
		{"spread", "an item that gives a list of four strings", "the four strings", variant{withContainer(parameter("type: list"), `args: [run, "${params.p.map(i, '--' + i)}"]`), own("a,b,c,d")}, variant{withContainer(parameter(""), "args: [run, --a, --b, --c, --d]"), own("a,b,c,d")}},
		{"object", "a computed `securityContext`", "written", spec(withContainer("", `securityContext: "${pod.spec.containers[0].securityContext}"`)), spec(withContainer("", "securityContext: {runAsUser: 5, capabilities: {drop: [ALL]}}"))},
		{"json-object", "a `securityContext` from `json` of an annotation", "`{'runAsUser': int(params.p.u)}`", variant{withContainer(parameter("type: json"), `securityContext: "${params.p}"`), own(`{"runAsUser": 5}`)}, variant{withContainer(parameter("type: json"), `securityContext: "${{'runAsUser': int(params.p.u)}}"`), own(`{"u": 5}`)}},
		{"objects", "a list of four computed `ports`", "written", spec(withContainer("", `ports: "${lists.range(4).map(i, {'containerPort': 7000 + i})}"`)), spec(withContainer("", "ports: [{containerPort: 7000}, {containerPort: 7001}, {containerPort: 7002}, {containerPort: 7003}]"))},
		{"volume", "a mount of the pod's volume", "of the template's", spec(mounting(`"${'data'}"`)), spec(mounting("own"))},
		{"account", "four annotations of the ServiceAccount", "constants", spec(withContainer("", four(`value: "${serviceAccount.annotations['role']}"`))), constant},
		{"ifSet", "`\"${ifSet}\": {append: NAME}`", "the variable NAME", spec(adding(`SETTING_NUMBER_0, value: web, "${ifSet}": {append: OTHER}`)), spec(adding("OTHER, value: web"))},
		{"placement", "`placement` after a container", "without", spec("placement: {containers: {after: app-0}}, " + constant.spec), constant},
		{"placement-list", "`placement` with three positions, of which the last one counts", "without", spec("placement: {containers: [{after: gone}, {before: gone-too}, Last]}, " + constant.spec), constant},
	}, parameters()...)
}

// parameters returns the rows about parameters.
func parameters() []construct {
	const split = `args: "${params.p.split(',')}"`
	const values = `args: "${params.p.map(k, params.p[k])}"`
	text := variant{withContainer(parameter(""), split), own("a,b,c,d")}
	return []construct{
		{"annotation", "a parameter with `annotation`", "without", variant{withContainer(parameter("annotation: example.com/p"), split), map[string]string{"example.com/p": "a,b,c,d"}}, text},
		{"list", "a `list` of four items", "`params.p.split(',')`", variant{withContainer(parameter("type: list"), `args: "${params.p}"`), own("a,b,c,d")}, text},
		{"map", "a `map` of four keys", "`params.p.split(',')`", variant{withContainer(parameter("type: map"), values), own("k=a,l=b,m=c,n=d")}, text},
		{"prefix", "a `prefix` with four annotations", "`params.p.split(',')`", variant{withContainer(parameter("prefix: example.com/p-"), values), map[string]string{"example.com/p-k": "a", "example.com/p-l": "b", "example.com/p-m": "c", "example.com/p-n": "d"}}, text},
		{"json", "`json` with a list of four strings", "`params.p.split(',')`", variant{withContainer(parameter("type: json"), `args: "${params.p.l.map(i, string(i))}"`), own(`{"l": ["a", "b", "c", "d"]}`)}, text},
	}
}

// own returns the annotation that sets the parameter p of the template.
func own(value string) map[string]string { return map[string]string{"side.pillion.dev/p": value} }

// parameter returns the beginning of a spec that declares the parameter p.
func parameter(fields string) string {
	return "params: [" + strings.TrimSuffix("{name: p, "+fields, ", ") + "}], "
}

// withContainer returns a spec in which the container has these fields.
func withContainer(before, fields string) string {
	return before + "pod: {spec: {containers: [{name: side, image: 'registry.example/side:1', " + fields + "}]}}"
}

// mounting returns a spec in which the container mounts this volume, too.
func mounting(volume string) string {
	return "pod: {spec: {volumes: [{name: own, emptyDir: {}}], containers: [{name: side, image: 'registry.example/side:1', volumeMounts: [{name: own, mountPath: /own}, {name: " + volume + ", mountPath: /data}]}]}}"
}

// adding returns a spec that adds this variable to the app.
func adding(variable string) string {
	return "forEachContainer: [{add: {env: [{name: " + variable + "}]}}]"
}

// loopOver returns the field env with a variable for each value of an expression.
func loopOver(names, expression, value string) string {
	return fmt.Sprintf(`env: [{"${forEach}": {%s: %q}, name: "E${k}", value: %q}]`, names, expression, value)
}

// four returns the field env with four variables that have these fields.
func four(fields string) string {
	var all [4]string
	for i := range all {
		all[i] = fmt.Sprintf("{name: E%d, %s}", i, fields)
	}
	return "env: [" + strings.Join(all[:], ", ") + "]"
}

// pod returns a pod of median size that the constructs can read.
func (v *variant) pod() []byte {
	return podJSON(typicalSize(), func(pod *corev1.Pod) {
		maps.Copy(pod.Annotations, v.annotations)
		user := int64(5)
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &user, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	})
}

// set returns the template.
func (v *variant) set() (*templates.Set, error) {
	all, problems := templates.Parse("side.yaml", []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: side}, spec: {default: true, "+v.spec+"}}"))
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w in %s", problems, v.spec)
	}
	return templates.NewSet(all), nil
}

// constructBenchmark returns the name of a measurement.
func constructBenchmark(name string, used bool, unit string) string {
	return fmt.Sprintf("construct=%s/used=%t %s", name, used, unit)
}

// constructCosts returns the table of what each construct costs for a pod.
func constructCosts(s samples) (string, error) {
	var text strings.Builder
	fmt.Fprint(&text, "| construct | the other way | µs | the other | ratio | allocations |\n|---|---|---:|---:|---:|---:|\n")
	for _, c := range constructs() {
		with, without := constructBenchmark(c.name, true, cpuUnit), constructBenchmark(c.name, false, cpuUnit)
		if err := s.missing(with, without); err != nil {
			return "", err
		}
		more := median(s[constructBenchmark(c.name, true, allocsUnit)]) - median(s[constructBenchmark(c.name, false, allocsUnit)])
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %+.0f |\n", c.what, c.otherwise, digits(median(s[with])/1000), digits(median(s[without])/1000), spread(s.ratios(with, without)), more)
	}
	return text.String(), nil
}
