// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// randomCluster is a cluster in a random state: what is installed and since when, whether the
// namespace shop opted in and since when, and pods and Deployments of every kind.
func randomCluster(t *testing.T, random *rand.Rand) *pagedAPI {
	t.Helper()
	some := func(all ...string) string { return all[random.IntN(len(all))] }
	at := func() string { return fmt.Sprintf("2026-0%d-01T00:00:00Z", 1+random.IntN(6)) }
	a := runningAPI(t)
	a.objects["/api/v1/namespaces/shop"] = yamlObject(t, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {%s}, annotations: {%s},
managedFields: [{manager: x, operation: Update, time: %q, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:labels": {"f:pillion.dev/inject": {}}}}}]}}`,
		some("pillion.dev/inject: enabled", "pillion.dev/inject: enabled", "pillion.dev/inject: enabled", "pillion.dev/inject: enabled", "pillion.dev/inject: disabled", "pillion.dev/inject: typo", "a: b"),
		some("", "", "agent.pillion.dev/level: loud", "agent.pillion.dev/levl: info"), at()))
	mutating, validating := a.objects[webhooksPath+"/pillion"].(map[string]any), a.objects[policiesPath+"validatingwebhookconfigurations/pillion"].(map[string]any)
	mutating["metadata"].(map[string]any)["creationTimestamp"] = some("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", at())
	a.list(policiesPath+"validatingwebhookconfigurations", validating)
	switch random.IntN(5) {
	case 0:
		delete(a.objects, webhooksPath+"/pillion")
		a.list(webhooksPath)
	case 1:
		delete(a.objects, policiesPath+"validatingwebhookconfigurations/pillion")
		a.list(policiesPath + "validatingwebhookconfigurations")
	case 2:
		a.list(readySlices)
	}
	var pods, deployments []map[string]any
	for i := range 12 {
		annotations := some("", "", `agent.pillion.dev/injected: "0123456789ab"`, `pillion.dev/templates: ""`, "pillion.dev/templates: nobody", "agent.pillion.dev/level: loud")
		labels := some("", "", "", ", pillion.dev/inject: enabled", ", pillion.dev/inject: disabled", `, pillion.dev/inject: "no"`)
		spec := some(`{containers: [{name: web, image: "web:1"}]}`, `{containers: [{name: web, image: "web:1"}]}`, `{containers: [{name: agent, image: "mine:1"}]}`, `{hostNetwork: true, containers: [{name: web, image: "web:1"}]}`,
			`{containers: [{name: web, image: "web:1"}], initContainers: [{name: agent, image: "agent:1", restartPolicy: Always}]}`)
		pods = append(pods, yamlObject(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: "p-%[1]d", namespace: shop, creationTimestamp: %[2]q, labels: {app: "w-%[1]d"%[3]s}, annotations: {%[4]s},
ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: "w-%[1]d", uid: u, controller: true}]}, spec: %[5]s}`, i, at(), labels, annotations, spec)))
		deployments = append(deployments, yamlObject(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: "w-%[1]d", namespace: shop}, spec: {selector: {matchLabels: {app: "w-%[1]d"}}, replicas: %[2]d,
template: {metadata: {labels: {app: "w-%[1]d"%[3]s}, annotations: {%[4]s}}, spec: %[5]s}}, status: {replicas: 1, readyReplicas: 1}}`, i, 1+random.IntN(2), labels, annotations, spec)))
	}
	a.list(shopPods, pods...)
	a.list("/apis/apps/v1/namespaces/shop/statefulsets", deployments...)
	for _, path := range []string{shopDeployments, shopSets, "/apis/apps/v1/namespaces/shop/daemonsets", "/apis/batch/v1/namespaces/shop/jobs", shopCronJobs} {
		a.list(path)
	}
	return a
}

// TestSameCause checks that in any state of a cluster, status and explain report the same state and
// cause for each pod, and the same reason for a workload without pods.
func TestSameCause(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20261122, 1))
	causes, fails := map[string]int{}, 0
	for range 20 {
		a := randomCluster(t, random)
		s, _ := a.report(t, "shop")
		byOwner := map[string]map[string]explain.Reason{}
		for _, o := range s.Owners {
			byOwner[o.Name] = map[string]explain.Reason{}
			for _, r := range o.Reasons {
				byOwner[o.Name][r.Template] = r
			}
		}
		failing := map[string]string{}
		for _, f := range s.Failing {
			failing[f.Name] = f.Why
			fails++
		}
		a.everyReport(t, "pods", func(r *explain.Report, name string) {
			for _, told := range r.Templates {
				reason, wrong := byOwner[strings.Replace(name, "p-", "w-", 1)][told.Template]
				if wrong != (told.State == explain.Missing || told.State == explain.Altered || told.State == explain.Outdated) || wrong && (reason.State != told.State || !strings.Contains(told.Message, reason.Why)) {
					t.Errorf("%s: status says %q, %q and explain %q, %q (%s)", name, reason.State, reason.Why, told.State, told.Message, told.Code)
				}
				if causes[reason.Why]++; wrong && told.Code == "" && told.State != explain.Outdated {
					t.Errorf("%s: no code beside %q", name, told.Message)
				}
			}
		})
		a.everyReport(t, "sts", func(r *explain.Report, name string) {
			if r.Failing != failing[name] {
				t.Errorf("%s: status says that it fails because of %q, and explain %q", name, failing[name], r.Failing)
			}
		})
	}
	for _, cause := range []string{"the pod is older than Pillion's webhook", "the pod is older than the namespace's label pillion.dev/inject", "the API server would not call Pillion for it: no MutatingWebhookConfiguration of Pillion is installed"} {
		if causes[cause] == 0 {
			t.Errorf("no pod had the cause %q", cause)
		}
	}
	if fails == 0 {
		t.Error("no workload failed")
	}
}

// everyReport passes what explain says of each object of a kind.
func (a *pagedAPI) everyReport(t *testing.T, kind string, each func(r *explain.Report, name string)) {
	t.Helper()
	_, stdout, stderr := a.runExplain(t, kind, "-n", "shop")
	reports := parseReports(t, stdout, stderr)
	for i := range reports {
		for _, o := range slices.Concat([]explain.Object{reports[i].Object}, reports[i].Same) {
			each(&reports[i], o.Name)
		}
	}
}
