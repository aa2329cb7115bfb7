// SPDX-License-Identifier: Apache-2.0

package schema_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

const typed = `{"metadata":{"name":"w","labels":{"a":"b"},"annotations":{"c/d":"e"},"ownerReferences":[{"kind":"Job","controller":true}]},"spec":{"hostNetwork":true,"terminationGracePeriodSeconds":5,
	"securityContext":{"fsGroup":5,"supplementalGroups":[1,2]},"nodeSelector":{"x":"y"},"tolerations":[{"key":"k","tolerationSeconds":3}],
	"initContainers":[{"name":"i","restartPolicy":"Always"}],
	"containers":[{"name":"app","args":["a","b"],"env":[{"name":"A","value":"b"},{"name":"F","valueFrom":{"secretKeyRef":{"name":"s","key":"k","optional":true}}}],"ports":[{"containerPort":80,"protocol":"TCP"}],
	"volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true}],"lifecycle":{"preStop":{"exec":{"command":["x"]}}},"readinessProbe":{"periodSeconds":3,"grpc":{"port":3}}}],
	"volumes":[{"name":"v","projected":{"defaultMode":420,"sources":[{"configMap":{"name":"c","items":[{"key":"a","path":"b"}]}}]}}]}}`

// TestMistyped compares with Kubernetes' own decoder: each value in turn becomes one of another kind.
func TestMistyped(t *testing.T) {
	t.Parallel()
	pod := schema.Pod()
	var whole any
	if err := json.Unmarshal([]byte(typed), &whole); err != nil {
		t.Fatal(err)
	}
	check := func() {
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		n, err := jsontree.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = json.Unmarshal(text, &corev1.Pod{})
		if found := pod.Mistyped(n); (err != nil) != (len(found) == 1) {
			t.Errorf("found %v, Kubernetes: %v, in %s", found, err, text)
		}
	}
	check()
	others := []any{"x", 5, true, map[string]any{"x": "y"}, []any{"x"}, nil}
	var visit func(v any, set func(any))
	visit = func(v any, set func(any)) {
		for _, other := range others {
			set(other)
			check()
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for key := range v {
				visit(v[key], func(other any) { v[key] = other })
			}
		case []any:
			for i := range v {
				visit(v[i], func(other any) { v[i] = other })
			}
		}
	}
	visit(whole, func(other any) { whole = other })
}
