// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// eachNamed reads the namespaces that the user named, each once.
func (k *survey) eachNamed(ctx context.Context, names []string, each func(*unstructured.Unstructured) error) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	k.found = len(names)
	for _, name := range names {
		object, err := k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && k.vanishing:
			continue
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no namespace %s", problem.OneLine(name))
		case err != nil:
			if err := k.reportForbidden(err, "get", "namespaces", name); err != nil {
				return err
			}
			continue
		}
		if err := each(object); err != nil {
			return err
		}
	}
	return nil
}

// namespaceFacts returns the facts apart from labels that decide about a namespace.
func (k *survey) namespaceFacts(ns *unstructured.Unstructured) status.Known {
	known := status.Known{Awaited: k.awaited[ns.GetName()], Deleted: ns.GetDeletionTimestamp() != nil}
	switch name := ns.GetName(); {
	case name == k.system:
		known.Excluded = "Pillion itself runs in it"
	case slices.Contains(inject.SystemNamespaces(), name):
		known.Excluded = "Pillion never injects there, so that the cluster does not depend on Pillion"
	case k.injector.Excludes(name):
		known.Excluded = "the flag --exclude-namespace of Pillion excludes it"
	}
	return known
}

// matchesWebhook reports whether a webhook matches pods of the namespace with this opt-in label.
func (k *survey) matchesWebhook(ns *unstructured.Unstructured, label string) bool {
	labels := map[string]string{}
	if label != "" {
		labels[inject.LabelInject] = label
	}
	probe, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{}})
	if err != nil {
		return false
	}
	return explain.Concerns(k.own.Entries, ns.GetLabels(), probe)
}

func (k *survey) newCount(ns *unstructured.Unstructured) *status.Count {
	return status.NewCount(k.injector, *k.namespaceScope(ns))
}

func (k *survey) namespaceScope(ns *unstructured.Unstructured) *status.Scope {
	scope := k.own
	scope.Namespace = request.Namespace{Name: ns.GetName(), Labels: ns.GetLabels(), Annotations: ns.GetAnnotations(), Known: true, ServiceAccounts: k.accounts}
	if ns.GetLabels()[inject.LabelInject] == inject.Enabled {
		scope.OptedIn = status.OptedIn(ns.GetManagedFields())
	}
	scope.Changed(k.mutation)
	return &scope
}

// alsoSelected combines a selector with the user's.
func (k *survey) alsoSelected(selector string) string {
	return strings.TrimSuffix(selector+","+k.selector.String(), ",")
}

// reportForbidden reports a missing right as a problem, so that the rest is reported too. It returns any
// other error.
func (k *survey) reportForbidden(err error, verb, resource, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	k.report.MissPods(fmt.Sprintf("Some pods%s are not counted, because you are not allowed to %s %s: ask for the verb %[2]s on the resource %[3]s there.",
		InNamespace(namespace), verb, resource))
	return nil
}
