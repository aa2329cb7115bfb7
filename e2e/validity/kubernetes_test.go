// SPDX-License-Identifier: Apache-2.0

// Package validity holds Pillion against Kubernetes' own code: a valid pod stays
// valid, and nothing that the API server does to a pod is a finding.
//
// It is a module of its own, because k8s.io/kubernetes must not be a dependency of
// the product.
package validity

import (
	"context"
	"flag"
	"io"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // the scheme's types
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/core/pod"
)

const namespace = "shop"

// TestMain allows privileged containers, as --allow-privileged does.
func TestMain(m *testing.M) {
	flag.Parse()
	capabilities.Setup(true, 0)
	klog.LogToStderr(false) // a line for each feature gate
	klog.SetOutput(io.Discard)
	m.Run()
}

// stored is the pod that the API server would keep: decoded with its defaults,
// without the fields whose feature gates are off, and validated. The error says why
// it would take none.
func stored(podJSON []byte) ([]byte, error) {
	defaulted, err := decoded(podJSON)
	if err != nil {
		return nil, err
	}
	if defaulted.Name == "" {
		defaulted.Name = defaulted.GenerateName + "abcde"
	}
	defaulted.UID, defaulted.CreationTimestamp = types.UID("u"), metav1.Unix(1, 0)
	ctx := genericrequest.WithNamespace(context.Background(), namespace)
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{APIGroup: "", APIVersion: "v1"})
	if err := rest.BeforeCreate(pod.Strategy, ctx, defaulted); err != nil {
		return nil, err
	}
	return encoded(defaulted)
}

// sent is the pod as the API server sends it to a mutating webhook: with defaults,
// and nothing dropped yet.
func sent(podJSON []byte) ([]byte, error) {
	p, err := decoded(podJSON)
	if err != nil {
		return nil, err
	}
	return encoded(p)
}

func decoded(podJSON []byte) (*core.Pod, error) {
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), podJSON)
	if err != nil {
		return nil, err
	}
	p := obj.(*core.Pod)
	p.Namespace = namespace
	if p.Spec.ServiceAccountName == "" { // as the ServiceAccount plugin does
		p.Spec.ServiceAccountName = "default"
		p.Spec.DeprecatedServiceAccount = "default" //nolint:staticcheck // the API server sets it
	}
	return p, nil
}

func encoded(p *core.Pod) ([]byte, error) {
	return runtime.Encode(legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), p)
}

func patched(t testing.TB, podJSON, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return podJSON
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Apply(podJSON)
	if err != nil {
		t.Fatalf("%v\npatch: %s\npod: %s", err, patch, podJSON)
	}
	return after
}
