// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// fakeCluster is an API server that knows who owns what field.
type fakeCluster struct {
	*fake.FakeDynamicClient
}

// newFake has both configurations in it.
func newFake(t *testing.T) *fakeCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for gv, kinds := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion:                  {"Secret"},
		coordinationv1.SchemeGroupVersion:          {"Lease"},
		admissionregistrationv1.SchemeGroupVersion: {Mutating.Kind(), Validating.Kind()},
	} {
		for _, kind := range kinds {
			scheme.AddKnownTypeWithName(gv.WithKind(kind), &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(gv.WithKind(kind+"List"), &unstructured.UnstructuredList{})
		}
	}
	c := &fakeCluster{fake.NewSimpleDynamicClient(scheme)}
	tracker := clienttesting.NewFieldManagedObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder(), managedfields.NewDeducedTypeConverter())
	c.ReactionChain = nil
	c.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	for which, webhooks := range map[Configuration][]string{Mutating: {"m1.pillion.dev", "m2.pillion.dev"}, Validating: {"v1.pillion.dev"}} {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: which.Kind()},
			ObjectMeta: metav1.ObjectMeta{Name: "pillion"},
		}
		for _, name := range webhooks {
			config.Webhooks = append(config.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name})
		}
		object, err := toUnstructured(config)
		must(t, err)
		_, err = c.Resource(which.Resource()).Create(t.Context(), object, metav1.CreateOptions{})
		must(t, err)
	}
	c.ClearActions()
	return c
}

func (c *fakeCluster) secrets() dynamic.ResourceInterface {
	return c.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("pillion-system")
}

func (c *fakeCluster) update(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	object, err := toUnstructured(secret)
	must(t, err)
	_, err = c.secrets().Update(t.Context(), object, metav1.UpdateOptions{})
	must(t, err)
}

func (c *fakeCluster) delete(t *testing.T) {
	t.Helper()
	must(t, c.secrets().Delete(t.Context(), "pillion-tls", metav1.DeleteOptions{}))
}
