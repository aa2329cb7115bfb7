// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestFixes checks for common mistakes that the message has the fix, and that a template with this fix has no problem.
func TestFixes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ what, params, broken, says, fixed string }{
		{
			"a list from a condition in a string", "{name: a, type: list, default: 'a,b'}, {name: tls, type: boolean, default: true}",
			`workingDir: "${params.tls ? params.a : []}"`, "write ${(params.tls ? params.a : []).join(',')}", `workingDir: "/${(params.tls ? params.a : []).join(',')}"`,
		},
		{
			"a list in a string", "{name: a, type: list, default: 'a,b'}",
			`args: ["--names=${params.a}"]`, "write ${params.a.join(',')}", `args: ["--names=${params.a.join(',')}"]`,
		},
		{
			"an integer in a list of strings", "{name: port, type: integer, default: 80}",
			`args: ["${params.port}"]`, "write ${string(params.port)}", `args: ["${string(params.port)}"]`,
		},
		{
			"a list of integers between strings", "",
			`args: [serve, "${pod.spec.containers.map(c, size(c.name))}"]`, "must be a list of strings, but ${pod.spec.containers.map(c, size(c.name))} gives a list of integers; write ${pod.spec.containers.map(c, size(c.name)).map(x, string(x))}", `args: [serve, "${pod.spec.containers.map(c, size(c.name)).map(x, string(x))}"]`,
		},
		{
			"${when} in a list of strings", "{name: debug, type: boolean, default: false}",
			`args: [serve, {"${when}": params.debug, value: --debug}]`, "such as ${params.debug ? ['--debug'] : []}", `args: [serve, "${params.debug ? ['--debug'] : []}"]`,
		},
		{
			"${forEach} in a list of strings", "{name: names, default: 'a,b'}",
			`args: [serve, {"${forEach}": {n: "params.names.split(',')"}, value: "--name=${n}"}]`, "such as ${params.names.split(',').map(n, '--name=' + n)}", `args: [serve, "${params.names.split(',').map(n, '--name=' + n)}"]`,
		},
		{
			"${forEach} in annotations", "{name: settings, type: map, default: 'team=a'}",
			`args: [a]}]}, metadata: {annotations: {"${forEach}": {"k, v": params.settings}, "example.com/${k}": "${v}"}}}, match: {podSelector: {matchExpressions: [{key: a, operator: Exists`,
			"write each key with a value that may be missing, such as ${params.settings[?'team']}",
			`args: [a]}]}, metadata: {annotations: {example.com/team: "${params.settings[?'team']}"}}}, match: {podSelector: {matchExpressions: [{key: a, operator: Exists`,
		},
		{
			"${forEach} in a map", "{name: limits, type: map, default: 'cpu=1'}",
			`resources: {limits: {"${forEach}": {"k, v": params.limits}, k: "${v}"}}`, "write one expression that gives the map, such as ${params.settings}, in place of this object", `resources: {limits: "${params.limits}"}`,
		},
		{
			"a probe with an action that may be missing", "{name: port, type: integer, optional: true}",
			`livenessProbe: {tcpSocket: "${params.?port.optMap(p, {'port': p})}"}`, `to leave out the whole object, write "${when}" in it, and .value() here`,
			`livenessProbe: {"${when}": has(params.port), tcpSocket: "${params.?port.optMap(p, {'port': p}).value()}"}`,
		},
		{
			"a probe with a conditional action", "{name: port, type: integer, optional: true}",
			`livenessProbe: {tcpSocket: {"${when}": has(params.port), port: "${params.?port.value()}"}}`, `to leave out the whole object, write "${when}" in it, and not here`,
			`livenessProbe: {"${when}": has(params.port), tcpSocket: {port: "${params.?port.value()}"}}`,
		},
		{
			"a variable with a source that may be missing", "{name: key, optional: true}",
			`env: [{name: A, valueFrom: {secretKeyRef: "${params.?key.optMap(k, {'name': 's', 'key': k})}"}}]`, `to leave out the whole object, write "${when}" in it, and .value() here`,
			`env: [{name: A, valueFrom: {"${when}": has(params.key), secretKeyRef: "${params.?key.optMap(k, {'name': 's', 'key': k}).value()}"}}]`,
		},
		{
			"join of integers", "",
			`args: ["${pod.spec.containers.map(c, size(c.name)).join(',')}"]`, "write .map(x, string(x)) before it", `args: ["${pod.spec.containers.map(c, size(c.name)).map(x, string(x)).join(',')}"]`,
		},
		{
			"a sum of maps", "",
			`args: ["${json.marshal({'a': 1} + {'b': 2})}"]`, "write the keys of both in one map", `args: ["${json.marshal({'a': 1, 'b': 2})}"]`,
		},
		{
			"null for a value that is left out", "{name: debug, type: boolean, default: true}",
			`workingDir: "${params.debug ? '/debug' : null}"`, "for a value that is left out otherwise, write when(condition, value)", `workingDir: "${when(params.debug, '/debug')}"`,
		},
		{
			"when() with a string for a condition", "{name: level, default: info}",
			`workingDir: "${when(params.level, '/debug')}"`, "for example when(params.level == 'debug', '--debug')", `workingDir: "${when(params.level == 'debug', '/debug')}"`,
		},
		{
			"when() with another number of arguments", "{name: debug, type: boolean, default: true}",
			`workingDir: "${when(params.debug, '/debug', '/')}"`, "a condition, and the value that is there if it is true", `workingDir: "${when(params.debug, '/debug')}"`,
		},
		{
			"when() of a value that may be missing", "{name: debug, type: boolean, default: true}, {name: dir, optional: true}",
			`workingDir: "${when(params.debug, params.?dir)}"`, "write CONDITION ? VALUE : optional.none()", `workingDir: "${params.debug ? params.?dir : optional.none()}"`,
		},
		{
			"a macro with two names", "",
			`args: ["${pod.metadata.labels.transformMapEntry(k, v, v).map(k, k).join(',')}"]`, "transformMapEntry() needs a map here", `args: ["${pod.metadata.labels.transformMapEntry(k, v, {v: k}).map(k, k).join(',')}"]`,
		},
		{
			"a merge of maps with other values", "",
			`args: ["${json.marshal({'a': 1}.merge({'b': 'x'}))}"]`, "it merges maps whose values have the same type", `args: ["${json.marshal({'a': '1'}.merge({'b': 'x'}))}"]`,
		},
		{
			"an item beside a list", "{name: a, type: list, default: 'a,b'}",
			`args: ["${(params.a + 'c').join(',')}"]`, "to add an item, write + [item]", `args: ["${(params.a + ['c']).join(',')}"]`,
		},
		{
			"a JSON parameter as the list of a loop", `{name: j, type: json, default: '["a"]'}`,
			`env: [{"${forEach}": {x: params.j}, name: A, value: "${string(x)}"}]`, "if it is a list, write params.j.map(x, x)", `env: [{"${forEach}": {x: "params.j.map(x, x)"}, name: "${'A' + string(x)}", value: "${string(x)}"}]`,
		},
		{
			"a required field that may be missing", "{name: key, optional: true}",
			`env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: "${params.?key}"}}}]`, `write "${when}" in it, and .value() here`,
			`env: [{"${when}": "params.?key.hasValue()", name: A, valueFrom: {secretKeyRef: {name: s, key: "${params.?key.value()}"}}}]`,
		},
	} {
		parse := func(fields string) string {
			_, problems := templates.Parse("x.yaml", fmt.Appendf(nil, `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: x}
spec: {params: [%s], pod: {spec: {containers: [{name: x, image: "x:1", %s}]}}}`, test.params, fields))
			return problems.Error()
		}
		if got := parse(test.broken); !strings.Contains(got, test.says) {
			t.Errorf("%s: the problems are %s; want %q", test.what, got, test.says)
		}
		if got := parse(test.fixed); got != "" {
			t.Errorf("%s: with the fix, the problems are %s", test.what, got)
		}
	}
}
