// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// writeStatus applies the status of a template.
func writeStatus(ctx context.Context, apply func(context.Context, *unstructured.Unstructured) error, template *kube.Entry, status *v1alpha1.Status) error {
	applied, err := statusObject(objectOf(template), status)
	if err != nil {
		return err
	}
	if err := apply(ctx, applied); err != nil {
		return fmt.Errorf("writing the status of %s: %w", template.ID(), err)
	}
	return nil
}

// statusObject returns a template with only a status, to apply it.
func statusObject(template *unstructured.Unstructured, status *v1alpha1.Status) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	applied := newObject(template.GetKind())
	applied.SetName(template.GetName())
	applied.SetNamespace(template.GetNamespace())
	applied.SetUID(template.GetUID()) // so that another template of this name does not get it
	applied.Object["status"] = fields
	return applied, nil
}

// statusOf returns the status of a template, without that of its rollout, or nil if it has none.
func statusOf(template *kube.Entry) *v1alpha1.Status {
	if template.Status == nil {
		return nil
	}
	status := *template.Status
	status.Failed = nil
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool { return c.Type != v1alpha1.ConditionReady })
	return &status
}
