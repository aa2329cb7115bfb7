// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"fmt"
	"testing"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestOwner checks which workload a pod belongs to, from the pod and from the pod template alone.
func TestOwner(t *testing.T) {
	t.Parallel()
	controlledBy := func(kind, name, labels string) string {
		return fmt.Sprintf(`{"metadata":{"generateName":"x-","labels":{%s},"ownerReferences":[{"kind":"Other","name":"o"},{"kind":%q,"name":%q,"controller":true}]}}`, labels, kind, name)
	}
	for _, c := range []struct {
		pod  string
		by   Owner
		want Owner
	}{
		{controlledBy("ReplicaSet", "web-5d4f8c7b9", `"pod-template-hash":"5d4f8c7b9"`), Owner{}, Owner{Kind: "Deployment", Name: "web"}},
		{controlledBy("ReplicaSet", "web-5d4f8c7b9", `"pod-template-hash":"5d4f"`), Owner{}, Owner{Kind: "ReplicaSet", Name: "web-5d4f8c7b9"}},
		{controlledBy("ReplicaSet", "web-5d4f8c7b9", ``), Owner{}, Owner{Kind: "ReplicaSet", Name: "web-5d4f8c7b9"}},
		{controlledBy("ReplicaSet", "-5d4f8c7b9", `"pod-template-hash":"5d4f8c7b9"`), Owner{}, Owner{Kind: "ReplicaSet", Name: "-5d4f8c7b9"}},
		{controlledBy("ReplicaSet", "web-6c9", `"rollouts-pod-template-hash":"6c9"`), Owner{}, Owner{Kind: "Rollout", Name: "web"}},
		{controlledBy("Job", "report-29312345", ``), Owner{}, Owner{Kind: "CronJob", Name: "report"}},
		{controlledBy("Job", "report-2931234", ``), Owner{}, Owner{Kind: "Job", Name: "report-2931234"}},
		{controlledBy("Job", "report-v2931234", ``), Owner{}, Owner{Kind: "Job", Name: "report-v2931234"}},
		{controlledBy("Job", "report29312345", ``), Owner{}, Owner{Kind: "Job", Name: "report29312345"}},
		{controlledBy("Job", "-29312345", ``), Owner{}, Owner{Kind: "Job", Name: "-29312345"}},
		{controlledBy("Job", "29312345", ``), Owner{}, Owner{Kind: "Job", Name: "29312345"}},
		{controlledBy("Job", "report-x7k2p", ``), Owner{}, Owner{Kind: "Job", Name: "report-x7k2p"}}, // the API server made the name
		{controlledBy("StatefulSet", "db", ``), Owner{}, Owner{Kind: "StatefulSet", Name: "db"}},
		{`{"metadata":{"name":"one"}}`, Owner{}, Owner{Kind: "Pod", Name: "one"}},
		{`{"metadata":{"name":"one-abcde","generateName":"one-"}}`, Owner{}, Owner{Kind: "Pod", Name: "one-"}},
		{`{"metadata":{"name":"one","ownerReferences":[{"kind":"Node","name":"n"}]}}`, Owner{}, Owner{Kind: "Pod", Name: "one"}},
		{`{}`, Owner{}, Owner{Kind: "Pod", Name: ""}},
		// Pod templates in files.
		{`{"metadata":{"labels":{"app":"web"}}}`, Owner{Kind: "Deployment", Name: "web"}, Owner{Kind: "Deployment", Name: "web"}},
		{`{}`, Owner{Kind: "CronJob", Name: "report"}, Owner{Kind: "CronJob", Name: "report"}},
		{`{}`, Owner{Kind: "Job", Name: "report-29312345"}, Owner{Kind: "CronJob", Name: "report"}},
		{`{"metadata":{"labels":{"pod-template-hash":"5d4f8c7b9"}}}`, Owner{Kind: "ReplicaSet", Name: "web-5d4f8c7b9"}, Owner{Kind: "Deployment", Name: "web"}},
	} {
		pod, err := jsontree.Parse([]byte(c.pod))
		if err != nil {
			t.Fatal(err)
		}
		if got := OfPod(pod, c.by); got != c.want {
			t.Errorf("%s of %v belongs to %v, want %v", c.pod, c.by, got, c.want)
		}
	}
}

// TestOwnerOf checks that an object agrees with its pods about their workload, also if the API server has made its name.
func TestOwnerOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, metadata string
		pod            string
		want           Owner
	}{
		{"Job", `"generateName":"report-","name":"report-x7k2p"`, `{"kind":"Job","name":"report-x7k2p","controller":true}`, Owner{Kind: "Job", Name: "report-x7k2p"}},
		{"Job", `"name":"report-29312345","ownerReferences":[{"kind":"CronJob","name":"report","controller":true}]`, `{"kind":"Job","name":"report-29312345","controller":true}`, Owner{Kind: "CronJob", Name: "report"}},
		{"CronJob", `"name":"report"`, `{"kind":"Job","name":"report-29312345","controller":true}`, Owner{Kind: "CronJob", Name: "report"}},
		{"Deployment", `"generateName":"web-","name":"web-abcde"`, `{"kind":"ReplicaSet","name":"web-abcde-6c9","controller":true}`, Owner{Kind: "Deployment", Name: "web-abcde"}},
		{"StatefulSet", `"generateName":"db-","name":"db-abcde"`, `{"kind":"StatefulSet","name":"db-abcde","controller":true}`, Owner{Kind: "StatefulSet", Name: "db-abcde"}},
		{"Pod", `"generateName":"one-","name":"one-abcde"`, ``, Owner{Kind: "Pod", Name: "one-"}},
		{"Job", `"generateName":"report-"`, `{"kind":"Job","name":"report-","controller":true}`, Owner{Kind: "Job", Name: "report-"}}, // a manifest, which has no name yet
	} {
		object, err := jsontree.Parse([]byte(`{"metadata":{` + c.metadata + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		pod := object
		if c.pod != "" {
			if pod, err = jsontree.Parse([]byte(`{"metadata":{"generateName":"x-","labels":{"pod-template-hash":"6c9"},"ownerReferences":[` + c.pod + `]}}`)); err != nil {
				t.Fatal(err)
			}
		}
		template := new(jsontree.Node) // a pod template has no owner
		if c.kind == "Pod" {
			template = object
		}
		if of, by := OfPod(template, OwnerOf(c.kind, object)), OfPod(pod, Owner{}); of != c.want || by != c.want {
			t.Errorf("%s %s: %v, and its pod belongs to %v; want %v", c.kind, c.metadata, of, by, c.want)
		}
	}
}

// TestOwnerSelectorOfKinds checks the selector of each kind of workload.
func TestOwnerSelectorOfKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, selector, want string }{
		{"Deployment", `{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"DoesNotExist"}]}`, "a=1,!b"},
		{"StatefulSet", `{"matchLabels":{"a":""}}`, "a="},
		{"Rollout", `{"matchExpressions":[{"key":"b","operator":"NotIn","values":["x","y"]}]}`, "b notin (x,y)"},
		{"ReplicationController", `{"a":"1"}`, "a=1"},
		{"Job", `null`, ""},
		{"Deployment", `{}`, ""},
		{"Deployment", `{"matchLabels":{"a":1}}`, ""},
		{"Deployment", `{"matchExpressions":[{"key":"b","operator":"Other"}]}`, ""},
		{"Service", `"a"`, ""},
	} {
		object, err := jsontree.Parse([]byte(`{"spec":{"selector":` + c.selector + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := OwnerOf(c.kind, object).Selector; got != c.want {
			t.Errorf("%s with the selector %s: %q, want %q", c.kind, c.selector, got, c.want)
		}
	}
}
