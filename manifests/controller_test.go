// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/manifests"
)

func controllerLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": manifests.ControllerName}
}

// TestControllerRights checks that the controller may write the status of templates, Events and its
// Lease, and nothing else, and that the webhooks' ServiceAccount does not get these rights.
func TestControllerRights(t *testing.T) {
	var account corev1.ServiceAccount
	var clusterRole rbacv1.ClusterRole
	var clusterBinding rbacv1.ClusterRoleBinding
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	decodeAll(t, "controller/rbac.yaml", &account, &clusterRole, &clusterBinding, &role, &binding)
	inside := metav1.ObjectMeta{Name: manifests.ControllerName, Namespace: manifests.Namespace, Labels: controllerLabels()}
	outside := metav1.ObjectMeta{Name: manifests.ControllerName, Labels: controllerLabels()}
	for _, c := range []struct{ got, want metav1.ObjectMeta }{
		{account.ObjectMeta, inside}, {clusterRole.ObjectMeta, outside}, {clusterBinding.ObjectMeta, outside}, {role.ObjectMeta, inside}, {binding.ObjectMeta, inside},
	} {
		wantSame(t, "metadata", c.got, c.want)
	}
	wantSame(t, "automountServiceAccountToken", account.AutomountServiceAccountToken, new(false))
	read := []string{"get", "list", "watch"}
	wantSame(t, "the ClusterRole", clusterRole.Rules, []rbacv1.PolicyRule{
		{APIGroups: []string{"pillion.dev"}, Resources: []string{"clustersidecartemplates", "sidecartemplates"}, Verbs: read},
		{APIGroups: []string{"pillion.dev"}, Resources: []string{"clustersidecartemplates/status", "sidecartemplates/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"get"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	})
	wantSame(t, "the Role", role.Rules, []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{manifests.ControllerName}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{manifests.Name}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{manifests.TemplatesConfigMap}, Verbs: []string{"get"}},
	})
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: manifests.ControllerName, Namespace: manifests.Namespace}}
	wantSame(t, "subjects", [][]rbacv1.Subject{clusterBinding.Subjects, binding.Subjects}, [][]rbacv1.Subject{subjects, subjects})
	wantSame(t, "the ClusterRoleBinding", clusterBinding.RoleRef, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name})
	wantSame(t, "the RoleBinding", binding.RoleRef, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name})
}

// TestControllerDeployment checks that the controller runs as restricted as the webhooks, and that no
// object that selects replicas of the webhooks selects it.
func TestControllerDeployment(t *testing.T) {
	var d appsv1.Deployment
	decodeAll(t, "controller/deployment.yaml", &d)
	b := load(t)
	for what, selector := range map[string]*metav1.LabelSelector{
		"the Deployment": b.deployment.Spec.Selector, "the PodDisruptionBudget": b.budget.Spec.Selector, "the Service": {MatchLabels: b.service.Spec.Selector},
	} {
		selects, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || selects.Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("%s of the webhooks selects the controller, %v", what, err)
		}
	}
	pod, of := d.Spec.Template.Spec, b.deployment.Spec.Template.Spec
	c := pod.Containers[0]
	probe := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(manifests.AdminPortName)}}, PeriodSeconds: period, FailureThreshold: failures}
	}
	wantSame(t, "the Deployment", d, appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: manifests.ControllerName, Namespace: manifests.Namespace, Labels: controllerLabels()},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(manifests.ControllerReplicas)),
			Selector: &metav1.LabelSelector{MatchLabels: controllerLabels()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: controllerLabels()},
				Spec: corev1.PodSpec{
					PriorityClassName: of.PriorityClassName, ServiceAccountName: manifests.ControllerName, AutomountServiceAccountToken: new(true),
					EnableServiceLinks: of.EnableServiceLinks, NodeSelector: of.NodeSelector, SecurityContext: of.SecurityContext,
					Containers: []corev1.Container{{
						Name: "controller", Image: manifests.Image, Args: []string{"controller", "--admin-listen=:8080"},
						Env:           of.Containers[0].Env, // --memory-limit
						Ports:         []corev1.ContainerPort{{Name: manifests.AdminPortName, ContainerPort: manifests.AdminPort}},
						LivenessProbe: probe(manifests.LivePath, 10, 3), ReadinessProbe: probe(manifests.ReadyPath, 5, 2),
						Resources:       c.Resources,
						SecurityContext: of.Containers[0].SecurityContext,
					}},
				},
			},
		},
	})
	wantSame(t, "resources", c.Resources, corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("96Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	})
}

// TestControllerNetworkPolicy checks that the policy for the controller is that of the webhooks without
// the webhooks' port.
func TestControllerNetworkPolicy(t *testing.T) {
	const dir = "components/network-policy"
	var p, webhooks networkingv1.NetworkPolicy
	decodeAll(t, filepath.Join(dir, "controller.yaml"), &p)
	decodeAll(t, filepath.Join(dir, "networkpolicy.yaml"), &webhooks)
	webhooks.ObjectMeta = metav1.ObjectMeta{Name: manifests.ControllerName, Namespace: manifests.Namespace, Labels: controllerLabels()}
	webhooks.Spec.PodSelector.MatchLabels = controllerLabels()
	webhooks.Spec.Ingress = slices.Clone(webhooks.Spec.Ingress[1:])
	wantSame(t, "the policy", p, webhooks)
}

// TestRolloutComponent checks that the component adds what the controller needs to update pods, only to its own
// ServiceAccount, and that it writes nothing but pods, evictions and what creates pods.
func TestRolloutComponent(t *testing.T) {
	var clusterRole rbacv1.ClusterRole
	var clusterBinding rbacv1.ClusterRoleBinding
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	decodeAll(t, "components/rollout/rbac.yaml", &clusterRole, &clusterBinding, &role, &binding)
	const name = manifests.ControllerName + "-rollout"
	for _, o := range []metav1.Object{&clusterRole, &clusterBinding, &role, &binding} {
		if o.GetName() != name || o.GetLabels()["app.kubernetes.io/name"] != manifests.ControllerName {
			t.Errorf("%s has the labels %v", o.GetName(), o.GetLabels())
		}
	}
	var writes []string
	for _, right := range manifests.Expand("", clusterRole.Rules...) {
		if right.Verb != "get" && right.Verb != "list" {
			writes = append(writes, right.String())
		}
	}
	slices.Sort(writes)
	wantSame(t, "writes", writes, []string{
		"create controllerrevisions.apps", "create pods/eviction", "delete controllerrevisions.apps", "patch daemonsets.apps", "patch deployments.apps", "patch pods", "patch pods/resize", "patch statefulsets.apps",
	})
	wantSame(t, "the Role", role.Rules, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}})
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: manifests.ControllerName, Namespace: manifests.Namespace}}
	wantSame(t, "subjects", [][]rbacv1.Subject{clusterBinding.Subjects, binding.Subjects}, [][]rbacv1.Subject{subjects, subjects})
	wantSame(t, "the ClusterRoleBinding", clusterBinding.RoleRef, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name})
	wantSame(t, "the RoleBinding", binding.RoleRef, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name})
}
