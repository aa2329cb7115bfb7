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
			"the port of a probe's action that may be missing", "{name: port, type: integer, optional: true}",
			`startupProbe: {httpGet: {path: /ready, port: "${params.?port}"}}`, `to leave out the whole startupProbe, write "${when}" in it, and .value() here`,
			`startupProbe: {"${when}": has(params.port), httpGet: {path: /ready, port: "${params.?port.value()}"}}`,
		},
		{
			"the field of a variable's source that may be missing", "{name: field, optional: true}",
			`env: [{name: A, valueFrom: {fieldRef: {fieldPath: "${params.?field}"}}}]`, `to leave out the whole valueFrom, write "${when}" in it, and .value() here`,
			`env: [{name: A, valueFrom: {"${when}": has(params.field), fieldRef: {fieldPath: "${params.?field.value()}"}}}]`,
		},
		{
			"the port of a container that may be missing", "{name: port, type: integer, optional: true}",
			`ports: [{name: web, containerPort: "${params.?port}"}]`, `to leave out the whole item, write "${when}" in it, and .value() here`,
			`ports: [{"${when}": has(params.port), name: web, containerPort: "${params.?port.value()}"}]`,
		},
		{
			"an integer beside strings", "{name: port, type: integer, default: 80}",
			`args: "${['--port', params.port]}"`, "need one type, so write string(params.port), unless", `args: "${['--port', string(params.port)]}"`,
		},
		{
			"an integer in a computed variable", "{name: port, type: integer, default: 80}",
			`env: "${['A'].map(name, {'name': name, 'value': params.port})}"`, "value: must be a string, not an integer; write string(params.port)", `env: "${['A'].map(name, {'name': name, 'value': string(params.port)})}"`,
		},
		{
			"a string in a computed port", "{name: port, default: '80'}",
			`ports: "${[{'name': 'web', 'containerPort': params.port}]}"`, "containerPort: must be an integer, not a string; write int(params.port)", `ports: "${[{'name': 'web', 'containerPort': int(params.port)}]}"`,
		},
		{
			"a sum of a JSON parameter and a map", `{name: j, type: json, default: '{}'}`,
			`args: ["${json.marshal(params.j + {'b': 'c'})}"]`, "or first.merge(second)", `args: ["${json.marshal(params.j.merge({'b': 'c'}))}"]`,
		},
		{
			"a sum of a map and a JSON parameter", `{name: j, type: json, default: '{}'}`,
			`args: ["${json.marshal({'b': 'c'} + params.j)}"]`, "or first.merge(second)", `args: ["${json.marshal({'b': 'c'}.merge(params.j))}"]`,
		},
		{
			"a key of a JSON parameter as the list of a loop", `{name: j, type: json, default: '{"l": ["a"]}'}`,
			`env: [{"${forEach}": {x: "params.j[?'l']"}, name: A, value: "${string(x)}"}]`, "if it is a list, write params.j[?'l'].orValue([]).map(x, x), and if it is a map", `env: [{"${forEach}": {x: "params.j[?'l'].orValue([]).map(x, x)"}, name: "${'A' + string(x)}", value: "${string(x)}"}]`,
		},
		{
			"map() of a key of a JSON parameter", `{name: j, type: json, default: '{"l": ["a"]}'}`,
			`args: "${params.j[?'l'].map(x, string(x))}"`, "if it is a list, write .orValue([]) before the macro", `args: "${params.j[?'l'].orValue([]).map(x, string(x))}"`,
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
		{
			"a value of unknown type that may be missing", "{name: j, type: json, default: '{}'}",
			`workingDir: "${params.j.?dir}"`, "write ${params.j.?dir.optMap(x, string(x))}", `workingDir: "${params.j.?dir.optMap(x, string(x))}"`,
		},
		{
			"an integer that may be missing in a list of strings", "{name: port, type: integer, optional: true}",
			`args: ["${params.?port}"]`, "write ${params.?port.optMap(x, string(x))}", `args: ["${params.?port.optMap(x, string(x))}"]`,
		},
		{
			"a list that may be missing in a string", "{name: names, type: list, optional: true}",
			`workingDir: "${params.?names}"`, "write ${params.?names.optMap(x, x.join(','))}", `workingDir: "${params.?names.optMap(x, '/' + x.join(','))}"`,
		},
		{
			"a string that may be missing for an integer", "{name: user, optional: true}",
			`securityContext: {runAsUser: "${params.?user}"}`, "write ${params.?user.optMap(x, int(x))}", `securityContext: {runAsUser: "${params.?user.optMap(x, int(x))}"}`,
		},
		{
			"a string that may be missing for a boolean", "{name: root, optional: true}",
			`securityContext: {privileged: "${params.?root}"}`, "write ${params.?root.optMap(x, x == 'true')}", `securityContext: {privileged: "${params.?root.optMap(x, x == 'true')}"}`,
		},
		{
			"a JSON parameter for a list of strings", "{name: j, type: json, default: '[]'}",
			`args: "${params.j}"`, "if it is a list, write ${params.j.map(x, string(x))}", `args: "${params.j.map(x, string(x))}"`,
		},
		{
			"a number in quotes", "",
			`securityContext: {runAsUser: "1000"}`, "must be an integer; write 1000 without quotes", `securityContext: {runAsUser: 1000}`,
		},
		{
			"a boolean in quotes", "",
			`securityContext: {privileged: "false"}`, "must be true or false; write false without quotes", `securityContext: {privileged: false}`,
		},
		{
			"a string for a list", "",
			`args: --level=info`, `must be a list of strings; write ["--level=info"]`, `args: ["--level=info"]`,
		},
		{
			"an environment variable in a script", "",
			`command: [sh, -c, "echo ${HOME}"]`, "write $${HOME} in a script of a shell", `command: [sh, -c, "echo $${HOME}"]`,
		},
		{
			"an environment variable in an argument", "",
			`args: ["--node=${NODE_NAME}"]`, "and $(NODE_NAME) elsewhere", `args: ["--node=$(NODE_NAME)"]`,
		},
		{
			"a shell's default", "",
			`command: [sh, -c, "echo ${LEVEL:-info}"]`, "for the shell, write $${LEVEL:-info}", `command: [sh, -c, "echo $${LEVEL:-info}"]`,
		},
		{
			"a shell's list", "",
			`command: [sh, -c, "echo ${ALL[@]}"]`, "for the shell, write $${ALL[@]}", `command: [sh, -c, "echo $${ALL[@]}"]`,
		},
		{
			"a shell's length and suffix", "",
			`command: [sh, -c, "echo ${#NAME} ${NAME%.*}"]`, "for the shell, write $${#NAME}", `command: [sh, -c, "echo $${#NAME} $${NAME%.*}"]`,
		},
		{
			"a shell's default of a parameter", "{name: level, optional: true}",
			`args: ["${params.level:-info}"]`, "as in params.?name.orValue('...')", `args: ["${params.?level.orValue('info')}"]`,
		},
		{
			"?: for a default", "{name: level, optional: true}",
			`args: ["${params.?level ?: 'info'}"]`, "?: is no operator", `args: ["${params.?level.orValue('info')}"]`,
		},
		{
			"|| for a default", "{name: level, optional: true}",
			`args: ["${params.?level || 'info'}"]`, "write .orValue(...) instead of ||", `args: ["${params.?level.orValue('info')}"]`,
		},
		{
			"&& for a value with a condition", "{name: debug, type: boolean, default: false}",
			`args: ["${params.debug && '--debug'}"]`, "for a value that is there if a condition is true, when(condition, value)", `args: ["${when(params.debug, '--debug')}"]`,
		},
		{
			"a string as a condition", "{name: level, default: info}, {name: debug, type: boolean, default: false}",
			`args: ["${params.level && params.debug ? 'a' : 'b'}"]`, "to compare it, write == '...'", `args: ["${params.level == 'debug' && params.debug ? 'a' : 'b'}"]`,
		},
		{
			"|| between strings", "{name: level, default: info}",
			`args: ["${params.level || 'info'}"]`, "for a choice, condition ? a : b", `args: ["${params.level != '' ? params.level : 'info'}"]`,
		},
		{
			"a value that may be missing as a condition", "{name: level, optional: true}",
			`args: ["${params.?level && params.?level.value() == 'debug' ? 'a' : 'b'}"]`, "write .hasValue() after it", `args: ["${params.?level.hasValue() && params.?level.value() == 'debug' ? 'a' : 'b'}"]`,
		},
		{
			"a boolean that may be missing as a condition", "{name: debug, type: boolean, optional: true}",
			`args: ["${params.?debug && true ? 'a' : 'b'}"]`, "write .orValue(false) after it", `args: ["${params.?debug.orValue(false) && true ? 'a' : 'b'}"]`,
		},
		{
			"a condition with one result", "{name: debug, type: boolean, default: false}",
			`args: ["${params.debug ? '--debug'}"]`, "or when(condition, a) for a value that is left out otherwise", `args: ["${when(params.debug, '--debug')}"]`,
		},
		{
			"map() of a string that may be missing", "{name: level, optional: true}",
			`args: ["${params.?level.map(l, '--level=' + l)}"]`, "write .optMap(x, ...)", `args: ["${params.?level.optMap(l, '--level=' + l)}"]`,
		},
		{
			"map() of a list that may be missing", "{name: names, type: list, optional: true}",
			`args: ["${params.?names.map(n, '--name=' + n)}"]`, "write .orValue([]) before the macro", `args: ["${params.?names.orValue([]).map(n, '--name=' + n)}"]`,
		},
		{
			"or() of a string", "{name: level, optional: true}",
			`args: ["${params.?level.or('info')}"]`, "so write orValue(...) here", `args: ["${params.?level.orValue('info')}"]`,
		},
		{
			"a map without quotes in a loop", "",
			`env: [{"${forEach}": {"k, v": {'A': 'b'}}, name: "${k}", value: "${v}"}]`, `put it in quotes, as in {"k, v": "..."}`, `env: [{"${forEach}": {"k, v": "{'A': 'b'}"}, name: "${k}", value: "${v}"}]`,
		},
		{
			"a choice between two actions", "{name: http, type: boolean, default: false}",
			`readinessProbe: {httpGet: {"${when}": params.http, port: 80}, tcpSocket: {"${when}": "!params.http", port: 80}}`,
			"to choose one for each pod, write one expression in place of the object, as in ${params.secure ? {'httpGet': {...}} : {'tcpSocket': {...}}}",
			`readinessProbe: "${params.http ? {'httpGet': {'port': 80}} : {'tcpSocket': {'port': 80}}}"`,
		},
		{
			"a value of unknown type beside a string", `{name: j, type: json, default: '{"host": "a"}'}`,
			`args: ["${[params.j.?host.orValue(''), 'b'].join(',')}"]`, "so write string(params.j.?host.orValue(''))", `args: ["${[string(params.j.?host.orValue('')), 'b'].join(',')}"]`,
		},
		{
			"text beside an expression without quotes", "{name: tls, type: boolean, default: false}",
			`args: [--tls=${params.tls ? 'on' : 'off'}]`, `put the whole value in quotes, as in "--name=${params.NAME}"`, `args: ["--tls=${params.tls ? 'on' : 'off'}"]`,
		},
		{
			"a condition without quotes", "{name: port, type: integer, optional: true}",
			`env: [{"${when}": params.?port.orValue(0) > 0, name: A, value: b}]`, `put the whole expression in quotes, as in "params.NAME == 'a'"`, `env: [{"${when}": "params.?port.orValue(0) > 0", name: A, value: b}]`,
		},
		{
			"a boolean beside a string", "{name: debug, type: boolean, default: false}",
			`args: ["${params.debug == 'true' ? 'a' : 'b'}"]`, "leave out the comparison", `args: ["${params.debug ? 'a' : 'b'}"]`,
		},
		{
			"map() with two names", "{name: all, type: map, default: 'A=b'}",
			`env: "${params.all.map(k, v, {'name': k, 'value': v})}"`, "write transformList(k, v, ...)", `env: "${params.all.transformList(k, v, {'name': k, 'value': v})}"`,
		},
		{
			"a key without quotes", "{name: names, type: list, default: 'a,b'}",
			`env: "${params.names.map(n, {name: n, 'value': 'a'})}"`, "a key of a map needs quotes: write 'name'", `env: "${params.names.map(n, {'name': n, 'value': 'a'})}"`,
		},
		{
			"a map for environment variables", "{name: all, type: map, default: 'A=b'}",
			`env: "${params.all}"`, "write ${params.all.transformList(k, v, {'name': k, 'value': v})}", `env: "${params.all.transformList(k, v, {'name': k, 'value': v})}"`,
		},
		{
			"an expression that gives a string for a list", "{name: names, type: list, default: 'a,b'}",
			`args: "${params.names.join(' ')}"`, "write ${[params.names.join(' ')]}", `args: "${[params.names.join(' ')]}"`,
		},
		{
			"double quotes in double quotes", "{name: level, default: info}",
			`args: ["${params.level == "x" ? 'a' : 'b'}"]`, "the strings of an expression need single quotes", `args: ["${params.level == 'x' ? 'a' : 'b'}"]`,
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
