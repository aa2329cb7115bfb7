// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
)

func someTexts() []string {
	var texts []string
	for _, name := range params.Types() {
		texts = append(texts, params.Samples(&v1alpha1.Param{Type: v1alpha1.ParamType(name)})...)
	}
	return append(texts,

		"", " ", "a", "A", "a b", "a,b", "info", "loud", "true", "false", "True", "0", "1", "-1", "+1", "007", "1.0", "1.5", ".5", "5.", "1e3", "1E-2", "1e400", "0x10",
		"Inf", "NaN", "1_000", "9223372036854775807", "9223372036854775808", "99999999999999999999", "100m", "64Mi", "1Gi", "-5", "1e1000", "m", "30s", "1h30m", "5", "-5m",
		".5s", "1.5h", "1us", "1µs", "h", "80", "65535", "65536", "2147483648", "http", "-http", "a--b", "averylongportname", "/logs", "/logs/", "//", "/", "/a//b", "/a/../b",
		"/a/..b", "/.", "..", "a/..", "TCP", "tcp", "File", "a.b-c", "A_B", "511", "512", "2147483647", "Always", "Memory", strings.Repeat("x", 64), strings.Repeat("x", 256), strings.Repeat("ä", 129), "a\nb", "☃", "yes", "Off", "T", "tRUE", "N", validation.TokenPath)
}

// declarations returns parameters of each type, with each kind of limit.
func declarations() []string {
	declared := []string{
		"type: string, maxLength: 4", "type: string, pattern: '[a-z]+'", "type: string, pattern: 'a|b'", "enum: [info, debug]",
		"type: integer, minimum: 0, maximum: 65535", "type: integer, enum: [1, 80]", "type: number, minimum: -1, maximum: 1.5",
		"type: quantity, minimum: 10m, maximum: 1Gi", "type: duration, minimum: 1s, maximum: 1h",
		"overridableBy: [Namespace]", "overridableBy: [Pod]", "overridableBy: []", "default: a, overridableBy: [Namespace]", "default: a, overridableBy: [Pod]", "default: a, overridableBy: []",
	}
	for _, name := range params.Types() {
		p := v1alpha1.Param{Type: v1alpha1.ParamType(name)}
		if params.PolicyOf(&p).Check == "" {
			continue // a policy cannot read it, see TestUnreadable
		}
		declared = append(declared, "type: "+name, "annotation: example.com/p, type: "+name)
		if params.PolicyOf(&p).Compare != "" {
			declared = append(declared, fmt.Sprintf("type: %s, minimum: %s, maximum: %[2]s", name, params.Samples(&p)[0]))
		}
	}
	return declared
}

// TestParameters checks that a policy accepts no value that the engine rejects, and accepts all
// others, except for those in careful.
func TestParameters(t *testing.T) {
	t.Parallel()
	careful := []string{"1e400", "0x10", "1_000", "9223372036854775807", ".5s"}
	env := environment(t)
	for _, declared := range declarations() {
		tmpl := parse(t, fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {
			params: [{name: p, %s}], pod: {metadata: {annotations: {x: "=${params.p}"}}}}}`, declared))
		key := tmpl.Key(&tmpl.Spec.Params[0])
		for _, text := range someTexts() {
			for _, places := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
				pod, ns := `{"metadata":{},"spec":{}}`, request.Namespace{Name: "shop"}
				if places[0] {
					pod = fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}},"spec":{}}`, key, strings.ReplaceAll(quoteString(text), `\x`, `\u00`))
				}
				if places[1] {
					ns.Annotations = map[string]string{key: text}
				}
				var annotations *jsontree.Node
				if places[0] {
					annotations = new(jsontree.Members(jsontree.Field(key, jsontree.Text(text))))
				}
				values, err := tmpl.Values(annotations, nil, &ns)
				b := &builder{set: templates.NewSet([]*templates.Template{tmpl}), t: tmpl}
				b.declareInputs(false)
				w := newWorld(t, env, pod, ns)
				w.declare(t, b.variables)
				valid, _ := w.eval(t, "variables.valid_p")
				switch got, want := valid != nil && valid.Value() == true, err == nil; {
				case got && !want, !got && want && !slices.Contains(careful, text):
					t.Errorf("{%s}: %q is valid: %v, want %v (%v) in pod, namespace: %v", declared, text, got, want, err, places)
				case got && want:
					in := input(t, pod, ns)
					rendered, err := tmpl.Render(in, values)
					if err != nil {
						t.Fatal(err)
					}
					if value, err := w.eval(t, `"=" + string(variables.param_p)`); err != nil || value.Value() != rendered.At("metadata", "annotations", "x").Text() {
						t.Errorf("{%s}: %q reads as %v (%v), want %s", declared, text, value, err, &rendered)
					}
				}
			}
		}
	}
}

// TestUnreadable checks that a policy reports the parameters that it cannot read.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for _, declared := range []string{"type: list", "type: map", "type: json", "prefix: example.com/p-"} {
		tmpl := parse(t, fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {required: true,
			params: [{name: p, %s}], pod: {spec: {containers: [{name: c, image: i}]}}}}`, declared))
		set := templates.NewSet([]*templates.Template{tmpl})
		if _, err := Mutating(set, Options{}); err == nil || !strings.Contains(err.Error(), "spec.params[0]") {
			t.Errorf("%s: a mutating policy: %v", declared, err)
		}
		if _, err := Validating(set, Options{}); err == nil || !strings.Contains(err.Error(), "spec.params[0]") {
			t.Errorf("%s: a validating policy: %v", declared, err)
		}
	}
}

// TestValueConditions checks that the engine renders each value that a policy accepts, in every
// place that may have an expression.
func TestValueConditions(t *testing.T) {
	t.Parallel()
	env, let := environment(t), 0
	for _, place := range []string{
		`metadata: {labels: {a.pillion.dev/x: "${params.s}"}}`, `metadata: {annotations: {x: "${params.s}"}}`,
		`spec: {containers: [{name: c, image: "${params.s}"}]}`,
		`spec: {containers: [{name: c, image: i, imagePullPolicy: "${params.s}"}]}`,
		`spec: {containers: [{name: c, image: i, ports: [{containerPort: "${params.n}"}]}]}`,
		`spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, protocol: "${params.s}"}]}]}`,
		`spec: {containers: [{name: c, image: i, readinessProbe: {httpGet: {port: "${params.n}"}}}]}`,
		`spec: {containers: [{name: c, image: i, readinessProbe: {httpGet: {port: "${params.s}", path: "${params.s}"}}}]}`,
		`spec: {containers: [{name: c, image: i, readinessProbe: {httpGet: {port: 80}, periodSeconds: "${params.n}"}}]}`,
		`spec: {containers: [{name: c, image: i, securityContext: {runAsUser: "${params.n}"}}]}`,
		`spec: {containers: [{name: c, image: i, resources: {limits: {cpu: "${params.s}"}, requests: {memory: "${params.n}"}}}]}`,
		`spec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: "${params.s}"}]}], volumes: [{name: v, emptyDir: {}}]}`,
		`spec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /a, subPath: "${params.s}"}]}], volumes: [{name: v, emptyDir: {}}]}`,
		`spec: {volumes: [{name: v, emptyDir: {medium: "${params.s}", sizeLimit: "${params.s}"}}]}`,
		`spec: {volumes: [{name: v, secret: {secretName: "${params.s}", defaultMode: "${params.n}"}}]}`,
		`spec: {volumes: [{"${when}": "params.s == '/logs'", name: v, hostPath: {path: "${params.s}"}}]}`,
		`spec: {volumes: [{name: v, secret: {secretName: s, items: [{key: "${params.s}", path: a, mode: "${params.n}"}]}}]}`,
		`spec: {securityContext: {fsGroup: "${params.n}"}}`,
		`spec: {containers: [{name: c, image: i, terminationMessagePolicy: "${params.s}"}]}`,
		`spec: {containers: [{name: c, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: "${params.s}", key: a}}}]}]}`,
		`spec: {containers: [{name: c, image: i, livenessProbe: {grpc: {port: "${params.n}"}, terminationGracePeriodSeconds: "${params.n}"}}]}`,
		`spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: "${params.n}"}]}]}`,
	} {
		tmpl := parse(t, fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {
			params: [{name: s, default: x}, {name: "n", type: integer, default: 1}], pod: {%s}}}`, place))
		m := newMutation(&builder{set: templates.NewSet([]*templates.Template{tmpl}), t: tmpl})
		m.declareInputs(false)
		conditions := allTrue(m.valueConditions(&m.pod)...)
		if len(m.problems) > 0 {
			t.Fatal(m.problems)
		}
		for _, text := range someTexts() {
			for _, name := range []string{"s", "n"} {
				key := "a.pillion.dev/" + name
				pod, ns := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}},"spec":{}}`, key, quoteString(text)), request.Namespace{Name: "shop"}
				values, err := tmpl.Values(new(jsontree.Members(jsontree.Field(key, jsontree.Text(text)))), nil, &ns)
				if err != nil {
					continue
				}
				w := newWorld(t, env, pod, ns)
				w.declare(t, m.variables)
				if ok, err := w.eval(t, conditions); err != nil || ok.Value() != true {
					continue
				}
				let++
				if _, err := tmpl.Render(input(t, pod, ns), values); err != nil {
					t.Errorf("%s with %q: the policy adds it, the engine says %v", place, text, err)
				}
			}
		}
	}
	if let < 100 {
		t.Errorf("only %d values were let through", let)
	}
}
