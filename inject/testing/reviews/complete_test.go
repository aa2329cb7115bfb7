// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/testing/golden"
)

type object = map[string]any

// TestReviews compares reviews.jsonl with what an API server would send for the pods of pods.yaml.
func TestReviews(t *testing.T) {
	pods, err := os.ReadFile("pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	if err := yaml.UnmarshalStrict(pods, &entries); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for i := range entries {
		if err := json.NewEncoder(&all).Encode(object{"name": entries[i].Name, "body": entries[i].review()}); err != nil {
			t.Fatal(err)
		}
	}
	golden.File(t, "reviews.jsonl", all.Bytes())
}

// entry is one pod of pods.yaml.
type entry struct {
	Name, Made string
	Pod        object
}

// review is the request that an API server would send for the pod's creation.
func (e *entry) review() object {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(e.Name))) // for all values that are random in a cluster
	namespace, user := "team-"+sum[:2], "system:serviceaccount:kube-system:"+strings.ToLower(e.Made)+"-controller"
	if e.Made == "none" {
		user = "jane@corp.example"
	}
	metadata := child(e.Pod, "metadata")
	name, _ := metadata["name"].(string)
	e.owned(metadata, namespace, sum)
	if name == "" {
		name, _ = metadata["name"].(string)
	}
	complete(child(e.Pod, "spec"), sum)
	metadata["managedFields"] = []any{object{
		"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T09:00:00Z",
		"fieldsType": "FieldsV1", "fieldsV1": fields(object{"spec": e.Pod["spec"], "metadata": object{"labels": metadata["labels"], "annotations": metadata["annotations"]}}),
	}}
	e.Pod["kind"], e.Pod["apiVersion"], e.Pod["status"] = "Pod", "v1", object{}
	kind := object{"group": "", "version": "v1", "kind": "Pod"}
	resource := object{"group": "", "version": "v1", "resource": "pods"}
	request := object{
		"uid":  fmt.Sprintf("%s-%s-4%s-8%s-%s", sum[:8], sum[8:12], sum[12:15], sum[15:18], sum[18:30]),
		"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
		"namespace": namespace, "operation": "CREATE", "dryRun": sum[0] == '0', "oldObject": nil,
		"userInfo": object{"username": user, "groups": []any{"system:authenticated"}},
		"object":   e.Pod, "options": object{"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
	}
	if name != "" {
		request["name"] = name
	}
	return object{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
}

// owned names the pod as its controller would.
func (e *entry) owned(metadata object, namespace, sum string) {
	metadata["namespace"] = namespace
	version, owner := "apps/v1", "it"
	switch e.Made {
	case "none":
		setDefault(metadata, "name", e.Name)
		return
	case "StatefulSet":
		metadata["name"] = "it-0"
	case "Job":
		version = "batch/v1"
		metadata["generateName"] = "it-"
	case "ReplicaSet":
		owner = "it-" + sum[:10]
		metadata["generateName"] = owner + "-"
		child(metadata, "labels")["pod-template-hash"] = sum[:10]
	default:
		metadata["generateName"] = "it-"
		child(metadata, "labels")["controller-revision-hash"] = sum[:10]
	}
	metadata["ownerReferences"] = []any{object{"apiVersion": version, "kind": e.Made, "name": owner, "uid": sum[:36], "controller": true, "blockOwnerDeletion": true}}
}

// complete adds what the API server's defaults and plugins add before webhooks are called.
func complete(spec object, sum string) {
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			completeContainer(c.(object))
		}
	}
	for key, value := range (object{
		"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": object{},
		"schedulerName": "default-scheduler", "serviceAccountName": "default", "enableServiceLinks": true, "priority": 0,
		"preemptionPolicy": "PreemptLowerPriority",
	}) {
		setDefault(spec, key, value)
	}
	spec["serviceAccount"] = spec["serviceAccountName"]
	tolerations, _ := spec["tolerations"].([]any)
	for _, key := range []string{"not-ready", "unreachable"} {
		tolerations = append(tolerations, object{"key": "node.kubernetes.io/" + key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
	}
	spec["tolerations"] = tolerations
	if spec["automountServiceAccountToken"] != false {
		mountToken(spec, "kube-api-access-"+sum[:5])
	}
}

func completeContainer(c object) {
	policy := "IfNotPresent"
	if image, _ := c["image"].(string); !strings.Contains(image[strings.LastIndexByte(image, '/')+1:], ":") {
		policy = "Always"
	}
	for key, value := range (object{"imagePullPolicy": policy, "resources": object{}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}) {
		setDefault(c, key, value)
	}
	ports, _ := c["ports"].([]any)
	for _, p := range ports {
		setDefault(p.(object), "protocol", "TCP")
	}
}

// mountToken adds what the ServiceAccount plugin adds.
func mountToken(spec object, volume string) {
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			mounts, _ := c.(object)["volumeMounts"].([]any)
			c.(object)["volumeMounts"] = append(mounts, object{"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"})
		}
	}
	volumes, _ := spec["volumes"].([]any)
	spec["volumes"] = append(volumes, object{"name": volume, "projected": object{"defaultMode": 420, "sources": []any{
		object{"serviceAccountToken": object{"expirationSeconds": 3607, "path": "token"}},
		object{"configMap": object{"name": "kube-root-ca.crt", "items": []any{object{"key": "ca.crt", "path": "ca.crt"}}}},
		object{"downwardAPI": object{"items": []any{object{"path": "namespace", "fieldRef": object{"apiVersion": "v1", "fieldPath": "metadata.namespace"}}}}},
	}}})
}

// fields returns managed fields: a map with a key for each field that is set.
func fields(value any) object {
	all := object{}
	switch value := value.(type) {
	case object:
		for key, v := range value {
			all["f:"+key] = fields(v)
		}
	case []any:
		for _, item := range value {
			member, _ := item.(object)
			if name := cmp.Or(member["name"], member["mountPath"]); name != nil {
				all[fmt.Sprintf("k:{\"name\":%q}", name)] = fields(item)
			}
		}
	}
	return all
}

func child(parent object, key string) object {
	c, ok := parent[key].(object)
	if !ok {
		c = object{}
		parent[key] = c
	}
	return c
}

func setDefault(parent object, key string, value any) {
	if _, ok := parent[key]; !ok {
		parent[key] = value
	}
}
