// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// plain is a pod without special fields.
var plain = sample.Situation{
	Pod:       []byte(`{"metadata":{"annotations":{"pillion.dev/templates":"x"}},"spec":{"containers":[{"name":"app","image":"registry.example/app:1"}]}}`),
	Namespace: request.Namespace{Name: "sample", Known: true},
}

const params = `params: [{name: tier, default: web, enum: [web, batch, db]}, {name: "n", type: integer, default: 1, maximum: 9}, {name: "on", type: boolean, default: false},
    {name: image, default: "registry.example/agent:1"}, {name: mode, default: "", overridableBy: [Namespace]}, {name: skip, default: "a,b"},
    {name: port, type: integer, optional: true, minimum: 1024}, {name: zone, optional: true, overridableBy: [Namespace]}]`

func parse(t *testing.T, spec string) *templates.Template {
	t.Helper()
	found, problems := templates.Parse("x", []byte("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: x}\nspec:\n  "+spec))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return found[0]
}

func withCondition(t *testing.T, condition string) *templates.Template {
	t.Helper()
	return parse(t, fmt.Sprintf("match: {condition: %q}\n  %s\n  pod: {metadata: {annotations: {x.example.com/a: b}}}", condition, params))
}

// decided returns the engine's decision about a template.
func decided(t *testing.T, of *templates.Template, s sample.Situation) inject.Decision {
	t.Helper()
	r, err := inject.New(templates.NewSet([]*templates.Template{of})).Inject(inject.Request{
		Operation: "CREATE", Username: s.Username, DryRun: s.DryRun, OptedIn: true, Namespace: s.Namespace, Object: s.Pod,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Decisions[0]
}

func meet(t *testing.T, of *templates.Template) (sample.Situation, bool) {
	t.Helper()
	got, _, ok := sample.Meet(of, plain, nil, func(s sample.Situation) bool {
		code := decided(t, of, s).Code
		return code.Succeeded()
	})
	return got, ok
}

// unmetParts returns the parts of a template's condition that no sample meets.
func unmetParts(of *templates.Template) []string {
	_, unmet, _ := sample.Meet(of, plain, nil, func(sample.Situation) bool { return true })
	return unmet
}

// realistic are conditions as templates have them: from this repository's examples and tests, as other injectors
// decide (the peers' annotations and labels), and as users of policies write them.
var realistic = strings.Split(strings.TrimSpace(`
!has(pod.spec.runtimeClassName)
has(params.port)
params.?port.hasValue() && !has(params.zone)
params.?port.orValue(0) > 3000
params.?zone.orValue('') == 'west'
params.?zone.orValue('').startsWith('w')
has(pod.spec.runtimeClassName)
pod.spec.containers.size() > 1
pod.spec.containers.size() == 1
size(pod.spec.initContainers) == 0
pod.spec.initContainers.size() >= 2
pod.spec.containers.exists(c, c.name == 'app') && params.n > 1
pod.spec.containers.exists(c, c.name == 't2')
!pod.spec.containers.exists(c, c.name == 'agent')
pod.spec.initContainers.exists(c, c.name == 'agent')
pod.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && 'nvidia.com/gpu' in c.resources.limits)
pod.metadata.labels[?'tier'].orValue(params.tier) != 'batch'
pod.metadata.labels[?'tier'].orValue(params.tier) == 'batch'
!request.dryRun || 'rehearsed' in pod.metadata.labels
request.dryRun
has(pod.metadata.labels) && 'accelerator' in pod.metadata.labels
ns.name != 'sandbox' && !pod.spec.containers.exists(c, c.name == 'collector')
ns.labels[?'team'].orValue('') == 'blue' && ns.name == 'shop' && request.operation == 'CREATE'
request.username.startsWith('system:serviceaccount:ci:')
request.username == 'me'
pod.metadata.annotations['a'].split(',').exists(x, x == 'q')
'q' in pod.metadata.annotations[?'a'].orValue('').split(',')
pod.metadata.annotations[?'vault.hashicorp.com/agent-inject'].orValue('false') == 'true'
pod.metadata.annotations.exists(k, k.startsWith('vault.hashicorp.com/agent-inject-secret-'))
'dapr.io/enabled' in pod.metadata.annotations && pod.metadata.annotations['dapr.io/enabled'].lowerAscii() in ['y', 'yes', 'true', 'on', '1']
int(pod.metadata.annotations[?'dapr.io/app-port'].orValue('0')) > 0
(pod.metadata.annotations[?'linkerd.io/inject'].orValue(ns.annotations[?'linkerd.io/inject'].orValue('')) in ['enabled', 'ingress']) && !(has(pod.spec.hostNetwork) && pod.spec.hostNetwork)
pod.spec.automountServiceAccountToken != false
pod.metadata.annotations[?'instrumentation.opentelemetry.io/inject-java'].orValue('') != ''
pod.metadata.annotations[?'sidecar.opentelemetry.io/inject'].hasValue()
pod.metadata.labels['app'].startsWith('shop-') && pod.metadata.labels['app'].endsWith('-v2')
pod.metadata.labels['app'] == 'web' || pod.metadata.labels['app'] == 'api'
pod.metadata.labels[?'app.kubernetes.io/component'].orValue('').matches('^(web|api)-[a-z]+[0-9]{2}$')
pod.spec.serviceAccountName == 'builder'
pod.spec.?serviceAccountName.orValue('default') != 'default'
pod.spec.containers.exists(c, c.image.startsWith('docker.io/library/postgres:'))
pod.spec.containers.all(c, c.image.startsWith('registry.corp/'))
pod.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)
pod.spec.containers.exists(c, c.ports.exists(p, p.containerPort == 8080))
pod.spec.containers.exists(c, c.ports.exists(p, p.name == 'metrics' && p.containerPort > 9000))
pod.spec.containers.exists_one(c, has(c.livenessProbe))
pod.spec.containers.exists(c, c.env.exists(e, e.name == 'DATABASE_URL' && e.value.contains('postgres')))
pod.spec.containers.exists(c, !has(c.securityContext) || !has(c.securityContext.readOnlyRootFilesystem))
pod.spec.containers.filter(c, c.image.contains('java')).size() > 0
pod.spec.containers.map(c, c.name).exists(n, n.endsWith('-main'))
'migrate' in pod.spec.initContainers.map(c, c.name)
pod.spec.volumes.exists(v, has(v.persistentVolumeClaim))
pod.spec.volumes.exists(v, v.name == 'data' && has(v.emptyDir))
pod.spec.volumes.exists(v, has(v.hostPath) && v.hostPath.path == '/var/log')
!pod.spec.volumes.exists(v, has(v.hostPath))
pod.spec.restartPolicy == 'Never'
has(pod.spec.securityContext) && has(pod.spec.securityContext.fsGroup)
pod.spec.securityContext.runAsNonRoot
has(pod.spec.priorityClassName) && pod.spec.priorityClassName in ['high', 'critical']
pod.metadata.ownerReferences.exists(o, o.kind == 'Job')
!pod.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet')
pod.spec.tolerations.exists(t, t.key == 'dedicated' && t.operator == 'Equal')
'cloud.example.com/pool' in pod.spec.nodeSelector
ns.labels.exists(k, k.startsWith('istio')) ? ns.labels[?'istio-injection'].orValue('') == 'disabled' : 'mesh' in pod.metadata.labels
params.on && params.tier == 'db' && params.image.endsWith(':2')
params.mode == 'strict' && size(params.skip) > 3
!params.skip.split(',').exists(s, s == ns.name)
pod.spec.terminationGracePeriodSeconds >= 60 && pod.spec.terminationGracePeriodSeconds < 600
sets.intersects(['gpu', 'tpu'], pod.metadata.labels[?'devices'].orValue('').split('.'))
pod.spec.containers[0].image.contains(':') && !pod.spec.containers[0].image.endsWith(':latest')
pod.metadata.labels.app == pod.spec.serviceAccountName
size(pod.spec.imagePullSecrets) > 0 && pod.spec.imagePullSecrets[0].name == 'corp'
pod.spec.containers.exists(c, c.volumeMounts.exists(m, pod.spec.volumes.exists(v, v.name == m.name && has(v.configMap))))
pod.metadata.labels[?'x'] == optional.of('y')
pod.metadata.labels[?'x'] != optional.none()
[ns.name, 'a'].exists(x, x == 'b')
pod.spec.containers.exists(c, c.image.split(':')[1] == 'debug')
double(pod.metadata.annotations[?'ratio'].orValue('0')) >= 0.5
pod.metadata.labels.exists(k, pod.metadata.labels[k] == 'yes')
ns.name.matches('^[a-z]{3}-\\d+$')
(has(pod.spec.hostPID) || pod.spec.containers.size() > 0) && pod.metadata.labels['a'] == 'b'
pod.spec.containers.exists(c, c.args.exists(a, a.startsWith('--level=')))
pod.spec.containers.exists(c, c.command[0] == 'java' && '-jar' in c.args)
pod.spec.containers.all(c, !c.image.contains(':latest') && c.image.contains('@sha256:'))
pod.spec.overhead.size() > 0
pod.spec.containers.exists(c, c.resources.limits['memory'] == '2Gi')
pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.exists(t, t.matchExpressions.exists(m, m.key == 'zone' && 'a' in m.values))
pod.spec.containers.exists(c, c.name == ns.name + '-web')
has(pod.spec.priorityClassName) && size(pod.spec.containers) % 2 == 0
pod.metadata.labels['a'] < pod.metadata.labels['b']
pod.metadata.annotations.filter(k, k.startsWith('corp/')).size() >= 2
`), "\n")

// unmet are conditions for which there is no sample, each with the part that is the reason.
var unmet = map[string]string{
	"ns.name.startsWith('team-') && ns.name.split('-')[1] == 'payments'":                                        `ns.name.split("-")[1] == "payments"`,
	"pod.spec.containers[0].name + '-logs' == 'web-logs'":                                                       `pod.spec.containers[0].name + "-logs" == "web-logs"`,
	"pod.metadata.labels['app'].reverse() == 'bew'":                                                             `pod.metadata.labels["app"].reverse() == "bew"`,
	"pod.metadata.labels['app'] + '-' + pod.metadata.labels['tier'] == 'web-front' && ns.name == 'shop'":        `pod.metadata.labels["app"] + "-" + pod.metadata.labels["tier"] == "web-front"`,
	"pod.metadata.labels.all(k, k.startsWith('corp/')) && size(pod.metadata.labels) == 2":                       `size(pod.metadata.labels) == 2`,
	"ns.name == 'a' && has(pod.spec.runtimeClassName) && ns.name == 'b'":                                        `ns.name == "b"`,
	"request.operation == 'UPDATE'":                                                                             `request.operation == "UPDATE"`,
	"params.n > 9":                                                                                              `params.n > 9`,
	"pod.spec.containers.exists(c, c.name == 'a') && !pod.spec.containers.exists(c, c.name.startsWith('a'))":    `!pod.spec.containers.exists(c, c.name.startsWith("a"))`,
	"pod.spec.containers.all(c, c.image.matches('^a')) && pod.spec.containers.exists(c, c.image.matches('^b'))": `pod.spec.containers.exists(c, c.image.matches("^b"))`,
	"false": "false",
}

// TestMeet checks that samples meet their condition according to the engine. Nearly all conditions of usual
// templates get a sample. The pods are the same in every run.
func TestMeet(t *testing.T) {
	t.Parallel()
	plainly, made := 0, 0
	for _, condition := range realistic {
		of := withCondition(t, condition)
		if decided(t, of, plain).Code == inject.CodeInjected {
			plainly++
		}
		got, ok := meet(t, of)
		if !ok {
			t.Errorf("%s: no sample; unmet: %q", condition, unmetParts(of))
			continue
		}
		made++
		if d := decided(t, of, got); d.Code != inject.CodeInjected {
			t.Errorf("%s: %s gets %s: %s", condition, got.Pod, d.Code, d.Sentence())
		}
		again, _ := meet(t, of)
		if !bytes.Equal(got.Pod, again.Pod) || fmt.Sprint(got.Namespace) != fmt.Sprint(again.Namespace) {
			t.Errorf("%s: first %s, then %s", condition, got.Pod, again.Pod)
		}

	}
	for condition, part := range unmet {
		of := withCondition(t, condition)
		if got, ok := meet(t, of); ok {
			t.Errorf("%s: %s", condition, got.Pod)
		}
		if got := unmetParts(of); !slices.Equal(got, []string{part}) {
			t.Errorf("%s: unmet is %q, want %q", condition, got, part)
		}
	}
	t.Logf("of %d conditions a plain pod meets %d, and a sample is made for %d", len(realistic)+len(unmet), plainly, made)
}

// TestWhere checks that for each entry of forEachContainer, the sample has a container to which it
// applies.
func TestWhere(t *testing.T) {
	t.Parallel()
	of := parse(t, `match: {condition: "ns.name == 'shop'"}
  forEachContainer:
  - {where: "container.image.startsWith('registry.corp/') && params.all", add: {env: [{name: A, value: a}]}}
  - {where: "container.name == 'setup'", initContainers: true, add: {env: [{name: B, value: b}]}}
  - {where: "container.name == 'never' && container.image == container.name + container.image", add: {env: [{name: C, value: c}]}}
  params: [{name: all, type: boolean, default: false}]`)
	got, ok := meet(t, of)
	if d := decided(t, of, got); !ok || d.Code != inject.CodeInjected || !bytes.Contains(got.Pod, []byte(`registry.corp/`)) || !bytes.Contains(got.Pod, []byte(`"setup"`)) {
		t.Errorf("%s gets %s", got.Pod, d.Code)
	}
	if changes := fmt.Sprint(sample.Changes(plain, got)); !strings.Contains(changes, `metadata.annotations["x.pillion.dev/all"]: "true"`) || !strings.Contains(changes, `namespace.name: "shop"`) {
		t.Errorf("changed: %s", changes)
	}
	if got, _, ok := sample.Meet(withCondition(t, "params.n == 3"), plain, []string{"x.n"}, func(sample.Situation) bool { return true }); ok {
		t.Errorf("a parameter that is fixed was changed: %s", got.Pod)
	}
}

// TestVariables checks that a condition that reads variables gets a sample.
func TestVariables(t *testing.T) {
	t.Parallel()
	of := parse(t, `variables:
  - {name: app, expression: "pod.metadata.labels[?'app'].orValue('')"}
  - {name: java, expression: "pod.spec.containers.exists(c, c.image.contains('java')) && variables.app == 'shop'"}
  match: {condition: "variables.java && variables.app.startsWith('s')"}
  pod: {metadata: {annotations: {a: "${variables.app}"}}}
  params: [{name: all, type: boolean, default: false}]`)
	got, ok := meet(t, of)
	if d := decided(t, of, got); !ok || d.Code != inject.CodeInjected || !bytes.Contains(got.Pod, []byte(`java`)) || !bytes.Contains(got.Pod, []byte(`"shop"`)) {
		t.Errorf("%s gets %s", got.Pod, d.Code)
	}
}

// FuzzMeet checks that for any condition, the sample meets it, or there is a reason.
func FuzzMeet(f *testing.F) {
	for _, condition := range realistic {
		f.Add(condition)
	}
	for condition := range unmet {
		f.Add(condition)
	}
	f.Fuzz(func(t *testing.T, condition string) {
		found, problems := templates.Parse("x", fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {match: {condition: %q}, %s, pod: {metadata: {annotations: {x.example.com/a: b}}}}}",
			condition, strings.ReplaceAll(params, "\n", "")))
		if len(problems) > 0 || len(found) == 0 {
			return
		}
		calls := 0
		got, _, ok := sample.Meet(found[0], plain, nil, func(s sample.Situation) bool {
			if calls++; calls > 300 {
				t.Fatal("it takes too much work")
			}
			return decided(t, found[0], s).Code == inject.CodeInjected
		})
		if d := decided(t, found[0], got); ok != (d.Code == inject.CodeInjected) {
			t.Errorf("%s: %v, but %s gets %s", condition, ok, got.Pod, d.Code)
		}
	})
}
