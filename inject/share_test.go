// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
)

const (
	oldAgent = `default: true, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: agent, image: "agent:1"}]}}`
	newAgent = `default: true, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: agent, image: "agent:2", env: [{name: A, value: b}]}]}}`
)

// agents returns an injector for templates, as "name: spec".
func agents(t *testing.T, specs ...string) *inject.Injector {
	t.Helper()
	var files []templates.File
	for i, text := range specs {
		name, spec, _ := strings.Cut(text, ": ")
		files = append(files, templates.File{Path: fmt.Sprint(i), Data: fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: %s}, spec: {%s}}", name, spec)})
	}
	set, err := templates.Compile(files...)
	if err != nil {
		t.Fatal(err)
	}
	return inject.New(set)
}

// podOf returns a pod of a Deployment.
func podOf(deployment string, k int) string {
	return fmt.Sprintf(`{"metadata":{"generateName":"%[1]s-6c9-","labels":{"pod-template-hash":"6c9"},`+
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%[1]s-6c9","uid":"%[2]d","controller":true}]},"spec":{"containers":[{"name":"app","image":"app:%[2]d"}]}}`, deployment, k)
}

func decisionOf(r *inject.Result, template string) inject.Code {
	for i := range r.Decisions {
		if r.Decisions[i].Template == template {
			return r.Decisions[i].Code
		}
	}
	return ""
}

// TestShare checks that a share selects about that many workloads, that all pods of one agree, that a pod template
// in a file agrees with the pods in the cluster, and that a greater share keeps the workloads of a smaller one.
func TestShare(t *testing.T) {
	t.Parallel()
	const count = 500
	before, numbers := map[string]bool{}, map[int]bool{}
	for i := range count {
		numbers[hundredthOf("shop", "Deployment", fmt.Sprint("web-", i), "agent-next")] = true
	}
	for _, share := range []int{1, 10, 20, 50, 99} {
		if !numbers[share-1] || !numbers[share] {
			t.Errorf("no workload is at the bound of a share of %d", share)
		}
	}
	for _, share := range []int{1, 10, 20, 50, 99, 100} {
		injector := agents(t, "agent: "+oldAgent, fmt.Sprintf("agent-next: replaces: agent, share: %d, %s", share, newAgent))
		selected := map[string]bool{}
		for i := range count {
			name := fmt.Sprint("web-", i)
			for k := range 3 {
				r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(podOf(name, k))})
				if err != nil {
					t.Fatal(err)
				}
				code, other := decisionOf(r, "agent-next"), decisionOf(r, "agent")
				is := code == inject.CodeInjected
				if is && other != inject.CodeReplaced || !is && (code != inject.CodeNotInShare || other != inject.CodeInjected) {
					t.Fatalf("%s: agent is %s, and agent-next is %s", name, other, code)
				}
				if k > 0 && is != selected[name] {
					t.Errorf("the pods of %s disagree", name)
				}
				if number := hundredthOf("shop", "Deployment", name, "agent-next"); is != (number < share) {
					t.Errorf("a share of %d: %s, whose number is %d, is selected: %t", share, name, number, is)
				}
				selected[name] = is
			}
			r, err := injector.Inject(inject.Request{
				Operation: "CREATE", OptedIn: true, File: true, Namespace: shopNamespace(), Owner: workloads.Owner{Kind: "Deployment", Name: name},
				Object: []byte(`{"spec":{"containers":[{"name":"app","image":"app"}]}}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			if is := decisionOf(r, "agent-next") == inject.CodeInjected; is != selected[name] {
				t.Errorf("the manifest of %s is selected: %v, and its pods: %v", name, is, selected[name])
			}
			if before[name] && !selected[name] {
				t.Errorf("%s is in a smaller share, but not in %d", name, share)
			}
			before[name] = selected[name]
		}
		n := 0
		for _, is := range selected {
			if is {
				n++
			}
		}
		if expected := count * share / 100; n < expected-30 || n > expected+30 || share == 100 && n != count {
			t.Errorf("a share of %d selects %d of %d workloads", share, n, count)
		}
	}
}

// hundredthOf computes the number of a workload as the reference of the template format defines it.
func hundredthOf(parts ...string) int {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00") + "\x00"))
	number := new(big.Int).SetBytes(sum[:8])
	return int(number.Mod(number, big.NewInt(100)).Int64())
}

// TestShareSets checks the verdict on pods while a canary comes, is promoted, and ends: pods that another replica
// injected a moment ago are never denied.
func TestShareSets(t *testing.T) {
	t.Parallel()
	old := agents(t, "agent: "+oldAgent)
	canary := agents(t, "agent: "+oldAgent, "agent-next: replaces: agent, "+newAgent)
	promoted := agents(t, "agent: "+newAgent)
	both := agents(t, "agent: "+newAgent, "agent-next: replaces: agent, "+newAgent)
	pod := podOf("web", 1)
	for _, c := range []struct {
		what    string
		by, now *inject.Injector
		before  []*inject.Injector
		want    string
	}{
		{"before the canary, judged with it", old, canary, []*inject.Injector{old}, "allowed"},
		{"before the canary, judged with it, long after", old, canary, nil, "allowed"},
		{"by the canary", canary, canary, []*inject.Injector{old}, "allowed"},
		{"by the canary, which is not known yet", canary, old, nil, "doubted"},
		{"by the canary, after it ended", canary, old, []*inject.Injector{canary}, "allowed"},
		{"by the canary, while it is promoted", canary, both, []*inject.Injector{canary}, "allowed"},
		{"by the canary, after it was promoted", canary, promoted, []*inject.Injector{both, canary}, "allowed"},
		{"by the canary, long after it was promoted", canary, promoted, nil, "allowed"},
		{"by the promoted one, judged by one that knows the canary", promoted, both, nil, "allowed"},
		{"by the old one, promoted already here", old, promoted, []*inject.Injector{both, canary, old}, "allowed"},
	} {
		v := mustJudge(t, inject.NewJudge(c.now, c.before, true), injectedBy(t, c.by, pod))
		if word(v) != c.want {
			t.Errorf("%s: %s, want %s: %v", c.what, word(v), c.want, v.Judged)
		}
	}
	for _, c := range []struct{ what, pod string }{
		{"nothing was injected", pod},
		{"the container is another one", strings.Replace(string(injectedBy(t, canary, pod).Object), "agent:2", "evil:1", 1)},
		{"only the records are there", strings.Replace(pod, `"labels"`, `"annotations":{"agent.pillion.dev/injected":"ffffffffffff","agent-next.pillion.dev/injected":"ffffffffffff"},"labels"`, 1)},
		{"the record of the old one is forged", strings.Replace(pod, `"labels"`, `"annotations":{"agent.pillion.dev/injected":"ffffffffffff"},"labels"`, 1)},
	} {
		if v := mustJudge(t, inject.NewJudge(canary, []*inject.Injector{old}, true), inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: []byte(c.pod)}); !v.Denied {
			t.Errorf("%s: the pod is %s", c.what, v.Word())
		}
	}
}

// TestShareNeverLost checks that a pod does not lose a required template if the one that replaces it cannot be
// injected, for whatever reason, and that it is denied if neither can be.
func TestShareNeverLost(t *testing.T) {
	t.Parallel()
	const required = "required: true, "
	for what, next := range map[string]string{
		"a condition fails":    `match: {condition: "pod.metadata.labels['none'] == 'x'"}, ` + newAgent,
		"an expression fails":  `pod: {spec: {containers: [{name: agent, image: "agent:${pod.metadata.labels['none']}"}]}}`,
		"a parameter is wrong": `params: [{name: count, type: integer}], pod: {spec: {containers: [{name: agent, image: "agent:${string(params.count)}"}]}}`,
		"a container is there": `pod: {spec: {containers: [{name: agent, image: "agent:2"}, {name: app, image: "other:1"}]}}`,
		"a volume is there":    `pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: agent, image: "agent:2", volumeMounts: [{name: v, mountPath: /v}]}]}}`,
		"it adds without end":  `forEachContainer: [{add: {env: [{name: "A${string(size(container.env))}", value: b}]}}], pod: {spec: {containers: [{name: agent, image: "agent:2"}]}}`,
	} {
		injector := agents(t, "agent: "+required+oldAgent, "agent-next: replaces: agent, "+required+next)
		pod := strings.Replace(podOf("web", 1), `"spec":{`, `"spec":{"volumes":[{"name":"v","configMap":{"name":"v"}}],`, 1)
		codes, after, verdict := checkOwnWork(t, injector, []byte(pod))
		if codes["agent-next"] != inject.CodeFellBack || codes["agent"] != inject.CodeInjected || verdict.Denied || !strings.Contains(string(after), "agent:1") {
			t.Errorf("%s: %v, and the pod is %s: %v\n%s", what, codes, verdict.Word(), verdict.Judged, after)
		}
		if v := mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: []byte(pod)}); !v.Denied {
			t.Errorf("%s: without an injection, the pod is %s", what, v.Word())
		}
		taken := strings.Replace(pod, `"containers":[`, `"containers":[{"name":"agent","image":"evil"},`, 1)
		if _, _, verdict = checkOwnWork(t, injector, []byte(taken)); !verdict.Denied {
			t.Errorf("%s, and the name is taken: the pod is %s", what, verdict.Word())
		}
	}
}

// TestShareStates checks the states of running pods before, during and after a canary.
func TestShareStates(t *testing.T) {
	t.Parallel()
	old := agents(t, "agent: "+oldAgent)
	canary := agents(t, "agent: "+oldAgent, "agent-next: replaces: agent, "+newAgent)
	few := agents(t, "agent: "+oldAgent, "agent-next: replaces: agent, share: 1, "+newAgent)
	changed := agents(t, "agent: "+oldAgent, "agent-next: replaces: agent, "+strings.Replace(newAgent, "agent:2", "agent:3", 1))
	promoted := agents(t, "agent: "+newAgent)
	broken := agents(t, "agent: "+oldAgent, `agent-next: replaces: agent, pod: {spec: {containers: [{name: app, image: other}]}}`)
	for _, c := range []struct {
		what    string
		by, now *inject.Injector
		want    string
	}{
		{"a canary has come", old, canary, "agent outdated, agent-next not wanted"},
		{"a canary for other workloads has come", old, few, "agent current, agent-next not wanted"},
		{"it has the canary", canary, canary, "agent not wanted, agent-next current"},
		{"the canary has changed", canary, changed, "agent not wanted, agent-next outdated"},
		{"the share has become smaller", canary, few, "agent not wanted, agent-next outdated"},
		{"the canary was promoted", canary, promoted, "agent current"},
		{"the old one was promoted", old, promoted, "agent outdated"},
		{"the canary has ended", canary, old, "agent outdated"},
		{"the canary could not be injected", broken, broken, "agent current, agent-next not wanted"},
		{"the canary was fixed since", broken, canary, "agent outdated, agent-next not wanted"},
	} {
		req := injectedBy(t, c.by, podOf("web", 1))
		req.Detail, req.OptedIn = true, true
		r, err := c.now.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		evidence := explain.EvidenceOf(req.Object)
		evidence.Without(c.now.Set(), r.Decisions)
		var states []string
		for i, of := range c.now.Set().Templates {
			states = append(states, of.Name+" "+string(evidence.State(of, &r.Decisions[i])))
		}
		slices.Sort(states)
		if got := strings.Join(states, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// TestUninjectReplaced checks that uninject removes what a template and the one that it replaced left in a pod.
func TestUninjectReplaced(t *testing.T) {
	t.Parallel()
	const plain = `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app"}]}}`
	for what, next := range map[string]string{
		"it replaces":  newAgent,
		"it fell back": `pod: {spec: {containers: [{name: app, image: other}]}}`,
	} {
		injector := agents(t, "agent: "+oldAgent, "agent-next: replaces: agent, "+next)
		if was, is := injectAndRemove(t, injector, inject.Request{Operation: "CREATE", Namespace: shopNamespace(), Object: []byte(plain)}); was != is {
			t.Errorf("%s: uninject leaves %s, want %s", what, is, was)
		}
	}
}
