// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// TestEffectsPage compares the table of the page about effects with the effects. make golden writes it.
func TestEffectsPage(t *testing.T) {
	const page, opening, closing = "../../../manifests/docs/effects.md", "<!-- effects: written by make golden -->\n", "<!-- end of effects -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		t.Fatalf("%s has no %q before %q", page, opening, closing)
	}
	var table strings.Builder
	for _, e := range limits.Effects() {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", e.Absent, e.Meaning, e.Changes, e.Source)
	}
	golden.File(t, page, []byte(before+opening+"| the template adds | before | after | source in Kubernetes |\n|---|---|---|---|\n"+table.String()+closing+after))
}

// TestEffects checks each effect on a pod that has it, and that none of them is reported if the pod has the same already, or if
// nothing was added. Each effect must have a pod.
func TestEffects(t *testing.T) {
	t.Parallel()
	var hasPod sync.Map
	t.Cleanup(func() {
		for _, e := range limits.Effects() {
			if _, ok := hasPod.Load(e.Absent); !ok {
				t.Errorf("no pod of this test has the effect of %s; add one", e.Absent)
			}
		}
	})
	const sidecar = `initContainers: [{name: side, restartPolicy: Always, image: "s:1"RESOURCES}]`
	for name, c := range map[string]struct {
		pod, already, kind string // without and with what the effect is about
		add                string // the spec of the fragment
		forEach            string // what is added to each container
		metadata           string
		want               string
	}{
		"guaranteed": {
			pod:     `{containers: [{name: app, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`,
			already: `{containers: [{name: app, resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}}]}`,
			add:     strings.ReplaceAll(sidecar, "RESOURCES", ", resources: {requests: {cpu: 1, memory: 1Gi}}"),
			want:    "the quality of service class of the pod is Burstable instead of Guaranteed, because the container side has no cpu limit",
		},
		"limit of storage": {
			pod:     `{containers: [{name: app, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`,
			already: `{containers: [{name: app, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {ephemeral-storage: 1Gi}}}]}`,
			add:     strings.ReplaceAll(sidecar, "RESOURCES", ", resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {ephemeral-storage: 128Mi}}"),
			want:    "the kubelet evicts the pod if all of its containers and emptyDir volumes together use more than 128Mi of ephemeral-storage, because only templates set such a limit",
		},
		"no limit of storage": {
			pod:     `{containers: [{name: app, resources: {limits: {ephemeral-storage: 1Gi}}}]}`,
			already: `{containers: [{name: app}]}`,
			add:     strings.ReplaceAll(sidecar, "RESOURCES", ""),
			want:    "the kubelet evicts the pod if it uses more than 1Gi of ephemeral-storage, which includes the container side without a limit",
		},
		"drain": {
			pod: `{containers: [{name: app}]}`, already: `{containers: [{name: app}], volumes: [{name: own, emptyDir: {}}]}`,
			add:      `volumes: [{name: tmp, emptyDir: {}}]`,
			metadata: `annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: tmp}`,
			want:     "kubectl drain removes the pod only with the flag --delete-emptydir-data, because of the emptyDir tmp",
		},
		"autoscaler": {
			pod: `{containers: [{name: app}]}`, already: `{containers: [{name: app}], volumes: [{name: own, hostPath: {path: /x}}]}`,
			add:  `volumes: [{name: tmp, hostPath: {path: /tmp}}]`,
			want: "the cluster autoscaler keeps the pod's node because of the local volume tmp, unless the annotation cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes lists it",
		},
		"horizontal pod autoscaler": {
			pod: `{containers: [{name: app, resources: {requests: {cpu: 1}}}]}`, already: `{containers: [{name: app}]}`,
			add:  strings.ReplaceAll(sidecar, "RESOURCES", ""),
			want: "a HorizontalPodAutoscaler cannot scale by the utilization of cpu, because there is no request of cpu for the container side, unless a LimitRange sets it",
		},
		"port": {
			pod:     `{initContainers: [{name: own, restartPolicy: Always, ports: [{name: metrics, containerPort: 9102}]}], containers: [{name: app}]}`,
			already: `{containers: [{name: app, ports: [{name: metrics, containerPort: 9102}]}]}`,
			add:     `initContainers: [{name: side, restartPolicy: Always, image: "s:1", ports: [{name: metrics, containerPort: 9090}]}]`,
			want:    "a Service whose targetPort is metrics sends to the port 9090 of the container side instead of 9102 of own, because the first container with a port of that name counts",
		},
		"default container": {
			pod:      `{containers: [{name: app}]}`,
			metadata: `annotations: {kubectl.kubernetes.io/default-container: side}`,
			add:      `containers: [{name: side, image: "s:1"}]`,
			want:     "kubectl logs and kubectl exec choose the container side instead of app",
		},
		"group": {
			pod: `{containers: [{name: app}]}`, already: `{containers: [{name: app}], securityContext: {fsGroup: 1}}`,
			add: `securityContext: {fsGroup: 2}`, want: "the kubelet gives the files in the pod's volumes to the group 2, and all containers are in it",
		},
		"processes": {
			pod: `{containers: [{name: app}]}`, already: `{containers: [{name: app}], shareProcessNamespace: true}`,
			add: `shareProcessNamespace: true`, want: "the first process of a container does not have the number 1, and containers see each other's processes and files, because of shareProcessNamespace",
		},
		"label": {
			pod:      `{containers: [{name: app}]}`,
			metadata: `labels: {t.pillion.dev/own: x, example.com/track: canary}`,
			add:      `containers: [{name: side, image: "s:1"}]`,
			want:     "selectors that exclude the label example.com/track=canary, for example of a Service or a NetworkPolicy, do not match the pod any more",
		},
		"variable": {
			pod:     `{containers: [{name: app, env: [{name: URL, value: "$(HOST):$(PORT)"}, {name: ESCAPED, value: "$$(HOST)"}, {name: PORT, value: "1"}]}]}`,
			already: `{containers: [{name: app, env: [{name: HOST, value: own}, {name: URL, value: "$(HOST)"}]}]}`,
			add:     `containers: [{name: side, image: "s:1", env: [{name: OWN, value: "$(LATER)"}, {name: LATER, value: x}]}]`, forEach: `env: [{name: HOST, value: localhost}, {name: SECOND, value: "$(HOST)"}]`,
			want: "the variable URL of the container app does not see HOST, because a variable sees only those before it, and the variables of templates come last; use $(HOST) in command or args",
		},
		"affinity": {
			pod:     `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}, {matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [linux]}]}]}}}, containers: [{name: app}]}`,
			already: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}, {matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}}, containers: [{name: app}]}`,
			add:     `containers: [{name: side, image: "s:1"}]`,
			want:    "the node affinity of the pod is for another operating system than linux, and the container side is for linux; set spec.os.name of the pod, which is all that Pillion reads besides spec.nodeSelector",
		},
		"runtime class": {
			pod: `{runtimeClassName: windows-2022, containers: [{name: app}]}`, already: `{runtimeClassName: windows-2022, os: {name: linux}, containers: [{name: app}]}`,
			add:  `initContainers: [{name: one, image: "s:1"}, {name: two, image: "s:1"}]`,
			want: "the runtime class windows-2022 of the pod is for another operating system than linux, and the containers one and two are for linux; set spec.os.name of the pod, which is all that Pillion reads besides spec.nodeSelector",
		},
		"job": {
			pod: `{restartPolicy: Never, containers: [{name: app}]}`, already: `{containers: [{name: app}]}`, kind: "Job",
			add: `containers: [{name: side, image: "s:1"}]`, want: "the pod does not end before the container side, because only native sidecars end with it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.kind = cmp.Or(c.kind, "Deployment")
			found, problems := templates.Parse("t", fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t}, spec: {default: true, labelDomains: [example.com], pod: {metadata: {%s}, spec: {%s}}, forEachContainer: [{add: {%s}}]}}", c.metadata, c.add, cmp.Or(c.forEach, "env: []")))
			if len(problems) > 0 {
				t.Fatal(problems.Error())
			}
			of := func(spec string) []string {
				pod := jsonOf(t, "{spec: "+spec+"}")
				r, err := inject.New(templates.NewSet(found)).Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod, Detail: true})
				if err != nil {
					t.Fatal(err)
				}
				if !r.Adds() {
					t.Fatalf("nothing is added: %+v", r.Decisions)
				}
				if again := limits.EffectsOf(r.InjectedJSON(), r.InjectedJSON(), c.kind); len(again) > 0 {
					t.Errorf("nothing was added, and there are the effects %q", again)
				}
				all := limits.Effects()
				for i := range all {
					if len(limits.EffectOf(t, &all[i], pod, r.InjectedJSON(), c.kind)) > 0 {
						hasPod.Store(all[i].Absent, true)
					}
				}
				return limits.EffectsOf(pod, r.InjectedJSON(), c.kind)
			}
			if got := of(c.pod); !slices.Equal(got, []string{c.want}) {
				t.Errorf("the effects are\n%q, and should be\n%q", got, c.want)
			}
			if c.already != "" && slices.Contains(of(c.already), c.want) {
				t.Error("the pod has the effect already, and it is reported")
			}
		})
	}
}

// TestEffectsOfKinds checks which effects matter for the pods of each kind of workload: kubectl drain and the cluster autoscaler
// leave those of a DaemonSet alone, the cluster autoscaler keeps the node of any pod without a controller, and a
// HorizontalPodAutoscaler scales only some kinds. A pod names its controller itself.
func TestEffectsOfKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, controller string
		want             []string
	}{
		{"Deployment", "", []string{"kubectl drain", "the cluster autoscaler", "a HorizontalPodAutoscaler"}},
		{"StatefulSet", "", []string{"kubectl drain", "the cluster autoscaler", "a HorizontalPodAutoscaler"}},
		{"Rollout", "", []string{"kubectl drain", "the cluster autoscaler", "a HorizontalPodAutoscaler"}},
		{"CronJob", "", []string{"kubectl drain", "the cluster autoscaler"}},
		{"Job", "", []string{"kubectl drain", "the cluster autoscaler"}},
		{"", "", []string{"kubectl drain"}},
		{"Pod", "", []string{"kubectl drain"}},
		{"DaemonSet", "", nil},
		{"", "DaemonSet", nil},
		{"", "ReplicaSet", []string{"kubectl drain", "the cluster autoscaler", "a HorizontalPodAutoscaler"}},
	} {
		metadata := `{"metadata":{"ownerReferences":[{"kind":"Other"}]},`
		if c.controller != "" {
			metadata = fmt.Sprintf(`{"metadata":{"ownerReferences":[{"kind":"Other"},{"kind":%q,"controller":true}]},`, c.controller)
		}
		const app = `"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":1}}}]`
		const side = `,"volumes":[{"name":"tmp","emptyDir":{}}],"initContainers":[{"name":"side","restartPolicy":"Always"}]`
		got := limits.EffectsOf([]byte(metadata+app+"}}"), []byte(metadata+app+side+"}}"), c.kind)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s, controlled by %q: %q, want %q", c.kind, c.controller, got, c.want)
		}
	}
}

// TestNoTokenIsNotLocalStorage checks that the volume in place of the API token has no effect.
func TestNoTokenIsNotLocalStorage(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("t", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t}, spec: {default: true, serviceAccountToken: None,
		pod: {spec: {initContainers: [{name: side, restartPolicy: Always, image: "s:1"}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	pod := jsonOf(t, "{spec: {containers: [{name: app}]}}")
	r, err := inject.New(templates.NewSet(found)).Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(r.InjectedJSON()), validation.NoTokenVolume) {
		t.Fatalf("the volume is not there: %s", r.InjectedJSON())
	}
	if got := limits.EffectsOf(pod, r.InjectedJSON(), "Deployment"); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func jsonOf(t *testing.T, text string) []byte {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	n, err := jsontree.FromYAML(&doc)
	if err != nil {
		t.Fatal(err)
	}
	return n.AppendTo(nil)
}

// TestEffectsOfManyVariables checks that one sentence is about all variables of a container that see none of a template's.
func TestEffectsOfManyVariables(t *testing.T) {
	t.Parallel()
	const n = 20_000
	var before, added strings.Builder
	for i := range n {
		fmt.Fprintf(&before, `,{"name":"A%d","value":"$(B%d)"}`, i, i)
		fmt.Fprintf(&added, `,{"name":"B%d","value":"x"}`, i)
	}
	pod := func(env string) []byte {
		return fmt.Appendf(nil, `{"spec":{"containers":[{"name":"app","env":[%s]}]}}`, env[1:])
	}
	effects := limits.EffectsOf(pod(before.String()), pod(before.String()+added.String()), "")
	if len(effects) != 1 || !strings.HasPrefix(effects[0], "the variables A0, A1, ") {
		t.Errorf("%d effects", len(effects))
	}
}
