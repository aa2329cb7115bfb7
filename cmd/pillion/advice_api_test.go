// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// api is the cluster as status sees it.
func (s *clusterState) api(t *testing.T) *pagedAPI {
	t.Helper()
	a := explainAPI(t)
	namespace := thing("v1", "Namespace", "", "shop", nil)
	namespace["metadata"].(map[string]any)["labels"] = s.labels
	a.list("/api/v1/namespaces", namespace)
	a.objects["/api/v1/namespaces/shop"] = namespace
	a.list(optedInPods)
	config := thing("v1", "ConfigMap", "pillion-system", "pillion-templates", nil)
	config["data"] = map[string]any{"agent.yaml": s.base}
	a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"] = config
	if a.list(templateObjects); s.object != "" {
		var more map[string]any
		if err := yaml.Unmarshal([]byte(s.object), &more); err != nil {
			t.Fatal(err)
		}
		a.list(templateObjects, more)
	}
	endpoints := []any{}
	for i := range 3 {
		endpoints = append(endpoints, map[string]any{"addresses": []any{fmt.Sprint("10.0.0.", i)}, "conditions": map[string]any{"ready": i < s.ready}})
	}
	slice := thing("discovery.k8s.io/v1", "EndpointSlice", "pillion-system", "a", nil)
	slice["endpoints"] = endpoints
	a.list(readySlices, slice)
	s.listWebhooks(t, a)
	var pods []map[string]any
	kinds := map[string][]map[string]any{}
	for _, o := range s.owners {
		kinds[o.kind] = append(kinds[o.kind], o.object(t))
		kinds["ReplicaSet"] = append(kinds["ReplicaSet"], o.sets(t)...)
		for i := range o.pods {
			pods = append(pods, o.running(t, i))
		}
	}
	a.list(shopPods, pods...)
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"} {
		a.list("/apis/apps/v1/namespaces/shop/"+strings.ToLower(kind)+"s", kinds[kind]...)
	}
	if s.quota != nil {
		a.list("/api/v1/namespaces/shop/resourcequotas", yamlObject(t, asJSON(t, s.quota)))
	}
	return a
}

// object is the workload with its status.
func (o *ownerState) object(t *testing.T) map[string]any {
	t.Helper()
	n, of, updated := len(o.pods), len(o.pods)+o.lacks, 0
	for i := range o.pods {
		if !o.old[i] {
			updated++
		}
	}
	return yamlObject(t, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"spec":{%s"replicas":%d,"template":%s},"status":{"replicas":%d,"readyReplicas":%d,
		"updatedReplicas":%d,"currentNumberScheduled":%d,"desiredNumberScheduled":%d,"updatedNumberScheduled":%d}}`, o.name, o.more, of, o.template, n, n, updated, n, of, updated))
}

// running is a pod as the API server has it.
func (o *ownerState) running(t *testing.T, i int) map[string]any {
	t.Helper()
	const created = "2026-03-01T09:00:00Z"
	pod := yamlObject(t, string(o.pods[i]))
	metadata := pod["metadata"].(map[string]any)
	metadata["name"], metadata["namespace"], metadata["creationTimestamp"], metadata["uid"] = o.podName(i), "shop", created, "u"
	kind, name := o.kind, o.name
	if kind == "Deployment" {
		kind, name = "ReplicaSet", o.setOf(i)
	}
	metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}}
	creator, editor := map[string]any{}, map[string]any{}
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := pod["spec"].(map[string]any)[list].([]any)
		for _, item := range items {
			container := item.(map[string]any)
			fields := map[string]any{".": map[string]any{}, "f:image": map[string]any{}, "f:resources": map[string]any{}}
			key := fmt.Sprintf(`k:{"name":%q}`, container["name"])
			if strings.HasPrefix(fmt.Sprint(container["image"]), changedImage+":") {
				delete(fields, "f:image")
				editor[key] = map[string]any{"f:image": map[string]any{}}
			}
			creator[key] = fields
		}
	}
	entry := func(manager, time string, containers map[string]any) map[string]any {
		return map[string]any{
			"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:spec": map[string]any{"f:initContainers": containers, "f:containers": containers}},
		}
	}
	metadata["managedFields"] = []any{entry("kube-controller-manager", created, creator), entry("kubectl-edit", "2026-03-02T09:00:00Z", editor)}
	return pod
}

func (o *ownerState) podName(i int) string { return fmt.Sprint(o.name, "-", i) }

// changedImage is the image that a user sets in a running pod.
const changedImage = "changed"

// setOf is the name of the ReplicaSet of a Deployment's pod.
func (o *ownerState) setOf(pod int) string {
	if o.old[pod] {
		return o.name + "-4c8"
	}
	return o.name + "-5f7"
}

// sets are the ReplicaSets of a Deployment. The newer one may be unable to create its pods.
func (o *ownerState) sets(t *testing.T) (all []map[string]any) {
	t.Helper()
	if o.kind != "Deployment" {
		return nil
	}
	for i, name := range []string{"5f7", "4c8"} {
		conditions := ""
		if i == 0 && o.lacks > 0 {
			conditions = `{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"admission webhook denied the request"}`
		}
		all = append(all, yamlObject(t, fmt.Sprintf(`{"metadata":{"name":"%s-%s","namespace":"shop","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":%q,"uid":"u","controller":true}]},
		"spec":{"template":%s},"status":{"conditions":[%s]}}`, o.name, name, o.name, o.template, conditions)))
	}
	return all
}

func (s *clusterState) listWebhooks(t *testing.T, a *pagedAPI) {
	t.Helper()
	var all []map[string]any
	if own := a.objects[webhooksPath+"/pillion"].(map[string]any); s.mutating {
		if s.url != "" {
			for _, w := range own["webhooks"].([]any) {
				w.(map[string]any)["clientConfig"] = map[string]any{"url": s.url}
			}
		}
		all = append(all, own)
	} else {
		delete(a.objects, webhooksPath+"/pillion")
	}
	if s.strips {
		all = append(all, yamlObject(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: strips-sidecars}, webhooks: [{name: w,
reinvocationPolicy: IfNeeded, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}]}`))
	}
	a.list(webhooksPath, all...)
}
