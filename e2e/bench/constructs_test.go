// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// accounts knows a ServiceAccount in each namespace.
type accounts struct{}

func (accounts) Namespace(name string) (request.Namespace, error) {
	known := request.SameServiceAccount{Known: true, Annotations: map[string]string{"role": "web"}}
	return request.Namespace{Name: name, ServiceAccounts: known}, nil
}

func (v *variant) handler(t testing.TB) http.Handler {
	t.Helper()
	set, err := v.set()
	if err != nil {
		t.Fatal(err)
	}
	h := handlerOf(set)
	h.Namespaces = accounts{}
	return h
}

// BenchmarkConstructs measures each construct of the format, and another way to give the pod the same.
func BenchmarkConstructs(b *testing.B) {
	for _, c := range constructs() {
		for i, v := range []variant{c.with, c.without} {
			b.Run(fmt.Sprintf("construct=%s/used=%t", c.name, i == 0), func(b *testing.B) { send(b, v.handler(b), webhook.PathMutate, v.pod(), true) })
		}
	}
}

// TestConstructs checks that both ways give the pod the same.
func TestConstructs(t *testing.T) {
	t.Parallel()
	for _, c := range constructs() {
		with, without := injected(t, c.with.handler(t), c.with.pod()), injected(t, c.without.handler(t), c.without.pod())
		with.Annotations, without.Annotations = nil, nil
		if c.name == "volume" {
			with.Spec.Containers[1].VolumeMounts[1].Name = "own"
		}
		if diff := cmp.Diff(without, with); diff != "" {
			t.Errorf("%s: - %s, + %s:\n%s", c.name, c.otherwise, c.what, diff)
		}
	}
}
