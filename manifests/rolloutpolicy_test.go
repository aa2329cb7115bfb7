// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"slices"
	"strings"
	"testing"

	"gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/manifests"
)

// TestRolloutPolicy checks what a client with the token of the controller may do to pods and workloads. All other clients are
// unaffected. TestStolenControllerToken of e2e does the same on an API server.
func TestRolloutPolicy(t *testing.T) {
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	decodeStrictly(t, "components/rollout/policy.yaml", &policy, &binding)
	if policy.Name != manifests.RolloutPolicy || binding.Name != policy.Name || policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("the policy is %s, and its failurePolicy is %v", policy.Name, policy.Spec.FailurePolicy)
	}
	wantSame(t, "the binding", binding.Spec, admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}})
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","uid":"u","resourceVersion":"1","generation":1,"labels":{"a":"b"},"annotations":{"agent.pillion.dev/injected":"0123456789ab","c":"d"},
"managedFields":[{"manager":"kube-controller-manager","fieldsV1":{"f:metadata":{},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{}}},"f:initContainers":{"k:{\"name\":\"setup\"}":{".":{}}}}}},
{"manager":"kubelet","subresource":"status","fieldsV1":{"f:status":{}}},{"manager":"user","fieldsV1":{"f:spec":{"f:initContainers":{"k:{\"name\":\"agent\"}":{"f:image":{}}}}}},{"manager":"old"}]},
"spec":{"nodeName":"n","initContainers":[{"name":"setup","image":"setup:1"},{"name":"agent","image":"agent:1","resources":{"limits":{"memory":"1Mi"}}}],"containers":[{"name":"app","image":"app:1","resources":{}},{"name":"proxy","image":"proxy:1"}]},"status":{"phase":"Running"}}`
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":1,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"app:1"}]}}}}`
	const evict = `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"},"deleteOptions":{"preconditions":{"uid":"u"}}}`
	const restart = `[{"op":"add","path":"/spec/template/metadata/annotations","value":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}]`
	const image = `[{"op":"replace","path":"/spec/initContainers/1/image","value":"agent:2"}]`
	const memory = `[{"op":"replace","path":"/spec/initContainers/1/resources/limits/memory","value":"2Mi"}]`
	const controller = "system:serviceaccount:pillion-system:pillion-controller"
	const good = `{"pillion.dev/rollout":"enabled","pillion.dev/inject":"enabled"}`
	type request struct {
		what, user, operation, resource string // GROUP/RESOURCE, and the subresource
		namespace, labels               string // of the namespace
		before, patch                   string
		want                            bool
	}
	change := func(what, resource, before, patch string, want bool) request {
		return request{what, controller, "UPDATE", resource, "shop", good, before, patch, want}
	}
	all := []request{
		change("an image", "/pods", pod, image, true),
		change("the image of a container that a webhook added after the app", "/pods", pod, `[{"op":"replace","path":"/spec/containers/1/image","value":"proxy:2"}]`, true),
		change("resources", "/pods/resize", pod, memory, true),
		change("first resources", "/pods/resize", pod, `[{"op":"add","path":"/spec/containers/1/resources","value":{"limits":{"cpu":"1"}}}]`, true),
		change("a record", "/pods", pod, `[{"op":"replace","path":"/metadata/annotations/agent.pillion.dev~1injected","value":"ba9876543210"}]`, true),
		change("one more record", "/pods", pod, `[{"op":"add","path":"/metadata/annotations/next.pillion.dev~1injected","value":"ba9876543210"}]`, true),
		change("what it had before", "/pods", pod, `[{"op":"add","path":"/metadata/annotations/agent.pillion.dev~1injected-before","value":"ba9876543210"}]`, true),
		change("what it had before, as something else", "/pods", pod, `[{"op":"add","path":"/metadata/annotations/agent.pillion.dev~1injected-before","value":"latest"}]`, false),
		change("no longer what it had before", "/pods", strings.Replace(pod, `"c":"d"`, `"agent.pillion.dev/injected-before":"ba9876543210"`, 1), `[{"op":"remove","path":"/metadata/annotations/agent.pillion.dev~1injected-before"}]`, true),
		change("one record less", "/pods", pod, `[{"op":"remove","path":"/metadata/annotations/agent.pillion.dev~1injected"}]`, true),
		change("what the API server sets", "/pods", pod, `[{"op":"replace","path":"/metadata/resourceVersion","value":"2"},{"op":"replace","path":"/metadata/generation","value":2},{"op":"add","path":"/metadata/managedFields/-","value":{"manager":"pillion-rollout"}}]`, true),
		change("a restart", "apps/deployments", deployment, restart, true),
		change("a restart", "apps/statefulsets", deployment, restart, true),
		change("a restart with a generation of templates", "apps/daemonsets", deployment, `[{"op":"add","path":"/metadata/annotations","value":{"deprecated.daemonset.template.generation":"2"}},`+restart[1:], true),
		change("that generation", "apps/deployments", deployment, `[{"op":"add","path":"/metadata/annotations","value":{"deprecated.daemonset.template.generation":"2"}}]`, false),
		change("resources and not as a resize", "/pods", pod, memory, false),
		change("an image as a resize", "/pods/resize", pod, image, false),
		change("the image of the app", "/pods", pod, `[{"op":"replace","path":"/spec/containers/0/image","value":"evil:1"}]`, false),
		change("the image of an init container", "/pods", pod, `[{"op":"replace","path":"/spec/initContainers/0/image","value":"evil:1"}]`, false),
		change("the resources of the app", "/pods/resize", pod, `[{"op":"add","path":"/spec/containers/0/resources/limits","value":{"cpu":"1"}}]`, false),
		change("another record", "/pods", pod, `[{"op":"replace","path":"/metadata/annotations/agent.pillion.dev~1injected","value":"other"}]`, false),
		change("an annotation", "/pods", pod, `[{"op":"replace","path":"/metadata/annotations/c","value":"e"}]`, false),
		change("a label", "/pods", pod, `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, false),
		change("a field of a later version", "/pods", pod, `[{"op":"add","path":"/spec/later","value":true}]`, false),
		change("another node", "/pods", pod, `[{"op":"replace","path":"/spec/nodeName","value":"m"}]`, false),
		change("no node", "/pods", pod, `[{"op":"remove","path":"/spec/nodeName"}]`, false),
		change("an argument", "/pods", pod, `[{"op":"add","path":"/spec/initContainers/1/args","value":["x"]}]`, false),
		change("one more container", "/pods", pod, `[{"op":"add","path":"/spec/containers/-","value":{"name":"more","image":"more:1"}}]`, false),
		change("one container less", "/pods", pod, `[{"op":"remove","path":"/spec/containers/1"}]`, false),
		change("another order", "/pods", pod, `[{"op":"move","from":"/spec/containers/0","path":"/spec/containers/1"}]`, false),
		change("no init containers", "/pods", pod, `[{"op":"remove","path":"/spec/initContainers"}]`, false),
		change("no managed fields", "/pods", pod, `[{"op":"remove","path":"/metadata/managedFields"}]`, false),
		change("not those of a container", "/pods", pod, `[{"op":"remove","path":"/metadata/managedFields/0/fieldsV1/f:spec/f:initContainers"}]`, false),
		change("a claim", "/pods", pod, `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"agent x7k2p9 1m30s 2026-11-27T14:03:11Z"}]`, true),
		change("a claim of all templates", "/pods", pod, `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"* x7k2p9 0s 2026-11-27T14:03:11Z"}]`, true),
		change("something else as a claim", "/pods", pod, `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"agent x7k2p9 1m30s 2026-11-27T14:03:11Z and more"}]`, false),
		change("no claim any more", "/pods", strings.Replace(pod, `"c":"d"`, `"pillion.dev/unproved":"whatever"`, 1), `[{"op":"remove","path":"/metadata/annotations/pillion.dev~1unproved"}]`, true),
		change("a claim as a resize", "/pods/resize", strings.ReplaceAll(pod, "agent.pillion.dev/injected", "agent.pillion.dev/other"), `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"agent x7k2p9 1m30s 2026-11-27T14:03:11Z"}]`, false),
		change("a claim in a pod without a record", "/pods", strings.ReplaceAll(pod, "agent.pillion.dev/injected", "agent.pillion.dev/other"), `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"agent x7k2p9 1m30s 2026-11-27T14:03:11Z"}]`, true),
		change("a claim and an image in a pod without a record", "/pods", strings.ReplaceAll(pod, "agent.pillion.dev/injected", "agent.pillion.dev/other"), `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"agent x7k2p9 1m30s 2026-11-27T14:03:11Z"},`+image[1:], false),
		change("a claim and a record in a pod without one", "/pods", strings.ReplaceAll(pod, "agent.pillion.dev/injected", "agent.pillion.dev/other"), `[{"op":"add","path":"/metadata/annotations/pillion.dev~1unproved","value":"agent x7k2p9 1m30s 2026-11-27T14:03:11Z"},{"op":"add","path":"/metadata/annotations/agent.pillion.dev~1injected","value":"ba9876543210"}]`, false),
		change("nothing in a pod without a record", "/pods", strings.ReplaceAll(pod, "agent.pillion.dev/injected", "agent.pillion.dev/other"), `[]`, false),
		change("a first record", "/pods", strings.ReplaceAll(pod, "agent.pillion.dev/injected", "agent.pillion.dev/other"), `[{"op":"add","path":"/metadata/annotations/agent.pillion.dev~1injected","value":"ba9876543210"}]`, false),
		change("an image in a pod without managed fields", "/pods", strings.ReplaceAll(pod, "f:spec", "f:x"), image, false),
		change("an image in a deployment", "apps/deployments", deployment, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil:1"}]`, false),
		change("replicas", "apps/deployments", deployment, `[{"op":"replace","path":"/spec/replicas","value":0}]`, false),
		change("another annotation of a pod template", "apps/deployments", deployment, strings.ReplaceAll(restart, "restartedAt", "other"), false),
		change("a restart and a label", "apps/deployments", deployment, restart[:len(restart)-1]+`,{"op":"add","path":"/spec/template/metadata/labels/c","value":"d"}]`, false),
		change("a time that is none", "apps/deployments", deployment, strings.ReplaceAll(restart, "2026-01-01", "now"), false),
		change("a restart", "apps/replicasets", deployment, restart, false),
		change("a restart", "batch/jobs", deployment, restart, false),
		change("a restart", "apps/deployments/scale", deployment, restart, false),
		change("a debug container", "/pods/ephemeralcontainers", pod, `[{"op":"add","path":"/spec/ephemeralContainers","value":[{"name":"debug"}]}]`, false),
		{"an eviction", controller, "CREATE", "/pods/eviction", "shop", good, evict, `[]`, true},
		{"an eviction that is a dry run", controller, "CREATE", "/pods/eviction", "shop", good, evict, `[{"op":"add","path":"/deleteOptions/dryRun","value":["All"]}]`, true},
		{"an eviction of any pod of that name", controller, "CREATE", "/pods/eviction", "shop", good, evict, `[{"op":"remove","path":"/deleteOptions"}]`, false},
		{"an eviction at once", controller, "CREATE", "/pods/eviction", "shop", good, evict, `[{"op":"add","path":"/deleteOptions/gracePeriodSeconds","value":0}]`, false},
		{"a pod", controller, "CREATE", "/pods", "shop", good, pod, `[]`, false},
		{"a binding", controller, "CREATE", "/pods/binding", "shop", good, `{}`, `[]`, false},
		{"a deployment", controller, "CREATE", "apps/deployments", "shop", good, deployment, `[]`, false},
		{"a deletion", controller, "DELETE", "/pods", "shop", good, pod, `[]`, false},
		{"exec", controller, "CONNECT", "/pods/exec", "shop", good, `{}`, `[]`, false},
	}
	all = append(all, historyRequests(func(what, operation, namespace, before, patch string, want bool) request {
		return request{what, controller, operation, "apps/controllerrevisions", namespace, `{}`, before, patch, want}
	})...)
	for labels, want := range map[string]bool{
		good: true, `{"pillion.dev/rollout":"enabled"}`: true, `{"pillion.dev/inject":"enabled"}`: false, `{"pillion.dev/rollout":"true","pillion.dev/inject":"enabled"}`: false, `{}`: false,
		`{"pillion.dev/rollout":"enabled","pillion.dev/inject":"shadow"}`: false, `{"pillion.dev/rollout":"enabled","pillion.dev/inject":"disabled"}`: false,
	} {
		for _, r := range []request{all[0], all[2], all[8], all[slices.IndexFunc(all, func(r request) bool { return r.what == "an eviction" })]} {
			r.labels, r.want = labels, want && (r.what != "a restart" || strings.Contains(labels, "inject")) // a workload must opt in
			all = append(all, r)
		}
	}
	for value, want := range map[string]bool{"enabled": true, "disabled": false} { // by its pod template
		r := change("a restart of a workload that says "+value, "apps/deployments", strings.Replace(deployment, `"template":{"metadata":{"labels":{`, `"template":{"metadata":{"labels":{"pillion.dev/inject":"`+value+`",`, 1), restart, want)
		r.labels = `{"pillion.dev/rollout":"enabled"}`
		all = append(all, r)
	}
	for _, namespace := range append(inject.SystemNamespaces(), "sidecars") {
		r := all[0]
		r.namespace, r.user, r.want = namespace, "system:serviceaccount:sidecars:pillion-controller", namespace == manifests.Namespace
		all = append(all, r) // in a system namespace, or its own one
		r.user, r.want = controller, namespace == "sidecars"
		all = append(all, r)
	}
	for user, limited := range map[string]bool{
		controller: true, "system:serviceaccount:sidecars:pillion-controller": true, "system:serviceaccount:x:team-pillion-controller": true, "system:serviceaccount:x:pillion-controller-2": true, "system:serviceaccount:x:a.pillion-controller": true,
		"system:serviceaccount:pillion-system:pillion": false, "system:serviceaccount:x:mypillion-controller": false, "system:serviceaccount:x:pillion-controllers": false, "admin": false,
		"x:pillion-controller": false, "system:node:pillion-controller": false, "pillion-controller": false,
	} {
		r := change("a label by "+user, "/pods", pod, `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, !limited)
		r.user = user
		all = append(all, r)
	}
	for _, r := range all {
		patch, err := jsonpatch.DecodePatch([]byte(r.patch))
		if err != nil {
			t.Fatal(err)
		}
		after, err := patch.Apply([]byte(r.before))
		if err != nil {
			t.Fatalf("%s: %v", r.what, err)
		}
		part := strings.SplitN(r.resource+"/", "/", 3)
		asked := map[string]any{"operation": r.operation, "namespace": r.namespace, "userInfo": map[string]any{"username": r.user}, "resource": map[string]any{"group": part[0], "version": "v1", "resource": part[1]}}
		if sub := strings.TrimSuffix(part[2], "/"); sub != "" {
			asked["subResource"] = sub
		}
		variables := map[string]any{"object": decode(t, string(after)), "oldObject": decode(t, r.before), "request": asked, "namespaceObject": decode(t, `{"metadata":{"labels":`+r.labels+`}}`)}
		switch r.operation {
		case "CREATE", "CONNECT":
			variables["oldObject"] = nil
		case "DELETE":
			variables["object"] = nil
		}
		if got := allows(t, &policy.Spec, variables); got != r.want {
			t.Errorf("%s: %s of %s in %s with %s: it is allowed: %t", r.what, r.operation, r.resource, r.namespace, r.labels, got)
		}
	}
}

// historyRequests are those of the history of templates. Namespaces need no label for it.
func historyRequests[R any](request func(what, operation, namespace, before, patch string, want bool) R) (all []R) {
	const ofShop = `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"sidecartemplate.agent.0123456789abcdef","resourceVersion":"1","labels":{"pillion.dev/template":"agent","pillion.dev/template-kind":"SidecarTemplate"},
"ownerReferences":[{"apiVersion":"pillion.dev/v1alpha1","kind":"SidecarTemplate","name":"agent","uid":"u","controller":true}]},
"revision":1,"data":{"spec":{"default":true}}}`
	ofCluster := strings.NewReplacer("sidecartemplate.agent", "clustersidecartemplate.agent", `"SidecarTemplate"`, `"ClusterSidecarTemplate"`).Replace(ofShop)
	const ofSet = `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"db-1","labels":{"app":"db"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u","controller":true}]},"revision":1,"data":{"spec":{"template":{}}}}`
	for _, operation := range []string{"CREATE", "DELETE"} {
		add := func(what, namespace, before string, want bool) {
			all = append(all, request(what, operation, namespace, before, `[]`, want))
		}
		add("a revision of a template", "shop", ofShop, true)
		add("a revision of a template of the cluster", "pillion-system", ofCluster, true)
		add("a revision of a template of the cluster elsewhere", "shop", ofCluster, false)
		add("a revision of a StatefulSet", "shop", ofSet, false)
	}
	for _, patch := range []string{
		`[{"op":"replace","path":"/metadata/name","value":"db-1"}]`, `[{"op":"replace","path":"/metadata/name","value":"sidecartemplate.other.0"}]`,
		`[{"op":"add","path":"/metadata/labels/app","value":"db"}]`, `[{"op":"remove","path":"/metadata/labels"}]`, `[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}}]`,
		`[{"op":"replace","path":"/metadata/labels/pillion.dev~1template-kind","value":"Other"}]`, `[{"op":"add","path":"/metadata/finalizers","value":["x"]}]`,
		`[{"op":"remove","path":"/metadata/ownerReferences"}]`, `[{"op":"replace","path":"/metadata/ownerReferences/0/kind","value":"StatefulSet"}]`,
		`[{"op":"replace","path":"/metadata/ownerReferences/0/apiVersion","value":"apps/v1"}]`, `[{"op":"replace","path":"/metadata/ownerReferences/0/name","value":"other"}]`,
		`[{"op":"add","path":"/metadata/ownerReferences/-","value":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u"}}]`,
		`[{"op":"add","path":"/data/other","value":1}]`,
	} {
		all = append(all, request("a revision that is none of a template: "+patch, "CREATE", "shop", ofShop, patch, false), request("a change to one that is none: "+patch, "UPDATE", "shop", ofShop, patch, false))
	}
	for _, patch := range []string{
		`[{"op":"replace","path":"/revision","value":3}]`, `[{"op":"replace","path":"/data/spec/default","value":false}]`, `[{"op":"replace","path":"/metadata/ownerReferences/0/uid","value":"other"}]`,
	} {
		all = append(all, request("a change: "+patch, "UPDATE", "shop", ofShop, patch, false), request("a change to a StatefulSet's", "UPDATE", "shop", ofSet, `[{"op":"replace","path":"/revision","value":3}]`, false))
	}
	return all
}
