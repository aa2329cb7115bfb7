// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

func evaluator(t *testing.T) *limits.Evaluator {
	t.Helper()
	e, err := limits.NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{"cpu": cpu, "memory": memory} {
		if text != "" {
			l[name] = resource.MustParse(text)
		}
	}
	return l
}

func TestQoS(t *testing.T) {
	t.Parallel()
	container := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	whole := container(list("1", "1Gi"), list("1", "1Gi"))
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want corev1.PodQOSClass
	}{
		"nothing":                 {corev1.PodSpec{Containers: []corev1.Container{{}}}, corev1.PodQOSBestEffort},
		"zero is nothing":         {corev1.PodSpec{Containers: []corev1.Container{container(list("0", ""), nil)}}, corev1.PodQOSBestEffort},
		"requests":                {corev1.PodSpec{Containers: []corev1.Container{container(list("1", ""), nil)}}, corev1.PodQOSBurstable},
		"limits are requests":     {corev1.PodSpec{Containers: []corev1.Container{container(nil, list("1", "1Gi"))}}, corev1.PodQOSGuaranteed},
		"all":                     {corev1.PodSpec{Containers: []corev1.Container{whole}}, corev1.PodQOSGuaranteed},
		"one without":             {corev1.PodSpec{Containers: []corev1.Container{whole, {}}}, corev1.PodQOSBurstable},
		"an init container too":   {corev1.PodSpec{Containers: []corev1.Container{whole}, InitContainers: []corev1.Container{{}}}, corev1.PodQOSBurstable},
		"less than the limit":     {corev1.PodSpec{Containers: []corev1.Container{container(list("1", "1Gi"), list("2", "1Gi"))}}, corev1.PodQOSBurstable},
		"the pod's own resources": {corev1.PodSpec{Resources: &whole.Resources, Containers: []corev1.Container{{}}}, corev1.PodQOSGuaranteed},
	} {
		if got := limits.QoS(&corev1.Pod{Spec: c.spec}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestViolation(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "a"}}}}
	for label, want := range map[string]bool{"": false, "privileged": false, "baseline": true, "restricted": true, "nonsense": false} {
		got := e.Violation(map[string]string{"pod-security.kubernetes.io/enforce": label}, pod)
		if (got != "") != want || want && !strings.Contains(got, "host namespaces") {
			t.Errorf("%q: %q", label, got)
		}
	}
}

// TestTry checks that the shipped templates, and some others, have the properties that their
// descriptions state.
func TestTry(t *testing.T) {
	t.Parallel()
	const others = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: host}
spec:
  labelDomains: [example.com]
  match: {podSelector: {matchLabels: {a: b}}}
  pod: {spec: {containers: [{name: host, image: h, securityContext: {privileged: true}}]}}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: double}
spec:
  order: 1
  pod: {spec: {containers: [{name: host, image: other}]}}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: picky}
spec:
  match: {condition: "pod.spec.containers.size() == 3"}
  pod: {spec: {containers: [{name: picky, image: p}]}}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: odd}
spec:
  match: {condition: "ns.name.startsWith('team-') && ns.name.split('-')[1] == 'blue'"}
  pod: {spec: {containers: [{name: odd, image: p}]}}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: needs}
spec:
  params: [{name: id, pattern: "a{300}|b{300}|c{300}|[0-9]{9}", overridableBy: [Namespace]}, {name: team, enum: [red, blue]}]
  pod: {spec: {containers: [{name: needs, image: "i:${params.id}-${params.team}"}]}}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: mounts}
spec:
  params: [{name: volume}]
  match: {condition: "pod.metadata.labels[?'a'].orValue('') == 'b'"}
  pod:
    spec:
      containers:
      - name: mounts
        image: m
        volumeMounts: [{name: "${params.volume}", mountPath: /a}, {name: "${'other'}", mountPath: /b}]
        volumeDevices: [{name: "${'disk'}", devicePath: /dev/x}]
`
	set, err := templates.Load(templates.Source{FS: os.DirFS("../../../templates/library"), Name: "."})
	if err != nil {
		t.Fatal(err)
	}
	more, problems := templates.Parse("others", []byte(others))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got := map[string]string{}
	for _, all := range []*templates.Set{set, templates.NewSet(more)} {
		for _, trial := range evaluator(t).Try(all, nil) {
			got[trial.Template] = fmt.Sprint(trial.PodSecurity, "|", trial.Why, "|", trial.QoS, "|", trial.Conflicts, "|", trial.Hints)
		}
	}
	for name, want := range map[string][]string{
		"fluent-bit":              {"restricted|", "map[BestEffort:Burstable]"},
		"opentelemetry-collector": {"restricted|"},
		"oauth2-proxy":            {"restricted|"},
		"host":                    {"privileged|not baseline: privileged (container \"host\"", "labelDomains allows it to set labels of example.com"},
		"double":                  {"baseline|not restricted: allowPrivilegeEscalation != false", "the template host adds a different container named host"},
		"picky":                   {"baseline|not restricted"},
		"odd":                     {"|lint found no sample pod that meets this part of the condition: ns.name.split(\"-\")[1] == \"blue\"|"},
		"mounts":                  {"baseline|"}, // lint gives the sample pod the volumes
		"needs":                   {"|needs.id has no default, and no sample fits; use --set needs.id=VALUE"},
	} {
		for _, part := range want {
			if !strings.Contains(got[name], part) {
				t.Errorf("%s says %s, want %s", name, got[name], part)
			}
		}
	}
	if trial := evaluator(t).Try(templates.NewSet(more[4:5]), map[string]string{"needs.id": "123456789"})[0]; trial.PodSecurity != "baseline" {
		t.Errorf("with a value: %+v", trial)
	}
}

// TestTryOnPods checks that each template is tried on each given pod unchanged, and that no pod is lost.
func TestTryOnPods(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("x", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {
		match: {condition: "ns.labels[?'team'].orValue('') == 'blue' && pod.spec.containers.size() > 1"}, params: [{name: level}],
		pod: {spec: {containers: [{name: x, image: x, args: ["${params.level}"], resources: {requests: {cpu: 10m}}}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	e := evaluator(t)
	subject := func(on, team, pod string) limits.Subject {
		s, err := e.Subject(on, []byte(pod), workloads.Owner{}, request.Namespace{Name: "shop", Known: true, Labels: map[string]string{"team": team}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const two = `{"metadata":{"annotations":{"x.pillion.dev/level":"high"}},"spec":{"hostPID":true,"containers":[{"name":"a","image":"a","resources":{"requests":{"cpu":"1"}}},{"name":"b","image":"b"}]}}`
	trials := e.Try(templates.NewSet(found), nil, subject("Pod/a", "blue", two), subject("Pod/b", "red", two), subject("Pod/c", "blue", `{"spec":{"containers":[{"name":"a","image":"a"}]}}`))
	if a := trials[0]; len(trials) != 3 || a.On != "Pod/a" || a.PodSecurity != "privileged" || a.Without != "privileged" || a.Requests.Cpu().String() != "10m" ||
		!strings.Contains(string(a.Pod), `"args":["high"]`) || len(a.Sample) != 0 {
		t.Errorf("%+v %s", a, a.Pod)
	}
	if b := trials[1]; b.PodSecurity != "" || fmt.Sprint(b.Unmet) != `[ns.labels[?"team"].orValue("") == "blue"]` {
		t.Errorf("%+v", b)
	}
	if c := trials[2]; c.PodSecurity != "" || fmt.Sprint(c.Unmet) != "[pod.spec.containers.size() > 1]" {
		t.Errorf("%+v", c)
	}
}

// TestHints checks that probable mistakes give hints, and that nothing else does.
func TestHints(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{required: true, validate: {mode: Warn}, pod: {spec: {containers: [{name: a, image: a}]}}}`:                                                                          "accepts pods without it",
		`{required: true, match: {hostNetwork: true}, pod: {spec: {containers: [{name: a, image: a}]}}}`:                                                                      "with further variables and mounts, which other webhooks may add",
		`{required: true, match: {hostNetwork: true}, validate: {protect: [all, env, volumeMounts]}, pod: {spec: {containers: [{name: a, image: a}]}}}`:                       "",
		`{required: true, pod: {spec: {containers: [{name: a, image: a}]}}}`:                                                                                                  "a pod with hostNetwork: true does not get it; set match.hostNetwork: true,",
		`{required: true, match: {hostNetwork: true}, validate: {protect: [image]}, pod: {spec: {containers: [{name: a, image: a}]}}}`:                                        "its own container named a that runs something else, because not all fields are protected; set validate.protect: [all]",
		`{validate: {mode: Deny, protect: [image, command]}, pod: {spec: {containers: [{name: a, image: a}]}}}`:                                                               "set validate.protect: [all]",
		`{validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: a, image: a}]}}}`:                                                                          "",
		`{validate: {mode: Deny}, forEachContainer: [{add: {env: [{name: A, value: b}]}}]}`:                                                                                   "",
		`{required: true, match: {hostNetwork: true}, pod: {spec: {containers: [{name: a, image: a, args: ["${pod.metadata.labels[?'app'].orValue('x')}"]}]}}}`:               "with other args, which are computed from the pod",
		`{validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: a, image: a, args: ["n${pod.spec.containers.size()}"]}]}}}`:                                "",
		`{pod: {spec: {initContainers: [{name: a, image: a, ports: [{containerPort: 1}]}]}}}`:                                                                                 "wait until the init container a ends",
		`{pod: {spec: {initContainers: [{name: a, image: a}]}}, validate: {protect: [restartPolicy]}}`:                                                                        "wait until the init container a ends",
		`{pod: {spec: {initContainers: [{name: a, image: a, restartPolicy: Always, ports: [{containerPort: 1}]}]}}}`:                                                          "",
		`{pod: {spec: {containers: [{name: a, image: a, args: ["n${pod.spec.containers.size()}"]}]}}, validate: {protect: [args]}}`:                                           "",
		`{pod: {spec: {containers: [{name: a, image: a, args: ["n${pod.spec.containers.size()}"]}]}}}`:                                                                        "",
		`{variables: [{name: a, expression: "1"}], pod: {metadata: {annotations: {a: b}}}}`:                                                                                   "no expression reads the variable a; remove it",
		`{variables: [{name: a, expression: "ns.name"}], pod: {metadata: {annotations: {a: "${variables.a}"}}}}`:                                                              "",
		`{forEachContainer: [{add: {lifecycle: {preStop: {sleep: {seconds: 10}}}}}]}`:                                                                                         "a pod with terminationGracePeriodSeconds: 1 does not get it: the container app sleeps for 10 s",
		`{params: [{name: p, type: integer, optional: true}], pod: {spec: {containers: [{name: a, image: a, ports: "${params.?p.optMap(x, [{'containerPort': x}])}"}]}}}`:     "",
		`{params: [{name: p, type: integer, optional: true}], pod: {spec: {containers: [{name: a, image: a, ports: "${params.?p.optMap(x, [{'containerPort': x - 1}])}"}]}}}`: "a pod that sets its optional parameters (p=1) does not get it",
		`{forEachContainer: [{add: {env: [{name: A, value: "${pod.metadata.labels.app}"}]}}]}`:                                                                                "no such key: app; for pods without it, write pod.metadata.labels.?app",
	} {
		found, problems := templates.Parse("x", []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: "+spec+"}"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		trial := evaluator(t).Try(templates.NewSet(found), nil)[0]
		got := strings.Join(trial.Hints, "; ")
		if trial.PodSecurity == "" {
			got = trial.Why
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// TestFails checks that a condition that fails on some pods is found, although it is true for the
// sample. If a selector excludes these pods, there is no finding.
func TestFails(t *testing.T) {
	t.Parallel()
	const lang = "pod.metadata.labels['lang'] == 'go'"
	for _, c := range []struct{ match, want string }{
		{`condition: "` + lang + `"`, "no such key: lang; for pods without it, write pod.metadata.labels[?'lang'].orValue('')"},
		{`condition: "pod.metadata.labels.lang == 'go'"`, "pods without the label lang"},
		{`condition: "pod.spec.containers[0].name == 'a' && ` + lang + `"`, "pods without the label lang"},
		{`condition: "pod.metadata.labels[?'a'].orValue('') == 'b' && ` + lang + `"`, "pods without the label lang"},
		{`condition: "` + lang + ` || pod.spec.hostNetwork", hostNetwork: true`, "lang"},
		{`condition: "pod.metadata.labels[?'a'].orValue('') != 'b' || ` + lang + `"`, ""},
		{`condition: "pod.metadata.annotations['x'] == 'y'"`, "pods without the annotation x"},
		{`condition: "ns.labels['team'] == 'blue'"`, "pods in namespaces without the label team"},
		{`condition: "ns.annotations['team'] == 'blue'"`, "pods in namespaces without the annotation team"},
		{`condition: "pod.metadata.labels[?'lang'].orValue('') == 'go'"`, ""},
		{`condition: "'lang' in pod.metadata.labels && ` + lang + `"`, ""},
		{`condition: "` + lang + `", podSelector: {matchExpressions: [{key: lang, operator: Exists}]}`, ""},
		{`condition: "` + lang + `", podSelector: {matchLabels: {tier: web}}`, "pods without the label lang"},
		{`condition: "ns.labels['team'] == 'blue'", namespaceSelector: {matchLabels: {team: blue}}`, ""},
		{`hostNetwork: true`, ""},
		{
			`condition: "` + lang + ` && pod.metadata.labels['os'] == 'x' && ns.labels['team'] == 'blue'"`,
			"pods without the label lang\npods without the label os\npods in namespaces without the label team",
		},
	} {
		for _, validate := range []string{"mode: Deny, protect: [all]", "mode: Warn"} {
			found, problems := templates.Parse("x", []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {default: true, match: {"+
				c.match+"}, validate: {"+validate+"}, pod: {spec: {containers: [{name: a, image: a}]}}}}"))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			trial := evaluator(t).Try(templates.NewSet(found), nil)[0]
			wants := strings.Split(c.want, "\n")
			wrong := c.want == "" && trial.Fails != nil || c.want != "" && len(trial.Fails) != len(wants)
			for i, fails := range trial.Fails {
				wrong = wrong || !strings.Contains(fails, wants[min(i, len(wants)-1)])
			}
			if wrong || trial.Insists != strings.Contains(validate, "Deny") {
				t.Errorf("%s: %q, want %q; insists: %t; %s", c.match, trial.Fails, c.want, trial.Insists, trial.Why)
			}
		}
	}
}
