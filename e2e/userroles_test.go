// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// userRoles are the roles of users, and those of Kubernetes that include some of Pillion's. Each has a user of that name.
var userRoles = []struct{ user, role, namespace string }{ // namespace: "" is the whole cluster
	{"nobody", "", ""},
	{"viewer", "pillion-viewer", ""},
	{"template-editor", "pillion-template-editor", ""},
	{"reader-of-shop", "view", "shop"},
	{"editor-of-shop", "edit", "shop"},
	{"admin-of-shop", "admin", "shop"},
	{"reader", "view", ""},
}

// userRequest is a request without a body. Namespace is "" for all namespaces, and name is "" for a list.
type userRequest struct{ verb, resource, namespace, name string }

// userRequests are what the users try. A name that does not exist is enough: without the right, the API server answers Forbidden.
var userRequests = []userRequest{
	{"list", "clustersidecartemplates.v1alpha1.pillion.dev", "", ""},
	{"delete", "clustersidecartemplates.v1alpha1.pillion.dev", "", "x"},
	{"list", "sidecartemplates.v1alpha1.pillion.dev", "shop", ""},
	{"delete", "sidecartemplates.v1alpha1.pillion.dev", "shop", "x"},
	{"list", "sidecartemplates.v1alpha1.pillion.dev", "other", ""},
	{"delete", "sidecartemplates.v1alpha1.pillion.dev", "other", "x"},
	{"get", "configmaps.v1.", pillionNamespace, "pillion-templates"},
	{"get", "configmaps.v1.", pillionNamespace, "other"},
	{"list", "configmaps.v1.", pillionNamespace, ""},
	{"delete", "configmaps.v1.", pillionNamespace, "pillion-templates"},
	{"get", "secrets.v1.", pillionNamespace, "pillion-tls"},
	{"get", "deployments.v1.apps", pillionNamespace, "pillion"},
	{"get", "deployments.v1.apps", pillionNamespace, "other"},
	{"list", "pods.v1.", pillionNamespace, ""},
	{"list", "pods.v1.", "shop", ""},
	{"get", "secrets.v1.", "shop", "x"},
	{"list", "namespaces.v1.", "", ""},
	{"list", "mutatingwebhookconfigurations.v1.admissionregistration.k8s.io", "", ""},
	{"delete", "mutatingwebhookconfigurations.v1.admissionregistration.k8s.io", "", "x"},
	{"list", "validatingadmissionpolicies.v1.admissionregistration.k8s.io", "", ""},
	{"list", "validatingadmissionpolicybindings.v1.admissionregistration.k8s.io", "", ""},
}

// TestUserRoles compares what users with each role can read and change with testdata/rights/users.txt. The users send the requests
// themselves.
func TestUserRoles(t *testing.T) {
	t.Parallel()
	needsControllerManager(t, "adds the rules of Pillion's roles to those of Kubernetes")
	c := newCluster(t)
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		if out, err := c.RunKubectl(testContext(t), []byte(stdin), args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	kubectl("", "apply", "--server-side", "-k", "../manifests/crds")
	for _, namespace := range []string{"shop", "other", pillionNamespace} {
		kubectl("", "create", "namespace", namespace)
	}
	for _, of := range userRoles {
		kubectl("", "create", "serviceaccount", of.user, "-n", "default")
		switch {
		case of.role == "":
		case of.namespace == "":
			kubectl("", "create", "clusterrolebinding", of.user, "--clusterrole="+of.role, "--serviceaccount=default:"+of.user)
		default:
			kubectl("", "create", "rolebinding", of.user, "-n", of.namespace, "--clusterrole="+of.role, "--serviceaccount=default:"+of.user)
		}
	}
	eventually(t, "the roles of Kubernetes have the rules of Pillion's", func(ctx context.Context) error {
		for _, of := range []struct{ user, verb, resource, namespace string }{
			{"reader", "list", "clustersidecartemplates.pillion.dev", ""},
			{"admin-of-shop", "delete", "sidecartemplates.pillion.dev", "shop"},
			{"editor-of-shop", "delete", "sidecartemplates.pillion.dev", "shop"},
			{"reader-of-shop", "list", "sidecartemplates.pillion.dev", "shop"},
		} {
			if _, err := c.RunKubectl(ctx, nil, "auth", "can-i", of.verb, of.resource, "-n", of.namespace, "--as=system:serviceaccount:default:"+of.user); err != nil {
				return fmt.Errorf("%s: %w", of.user, err)
			}
		}
		return nil
	})
	var page strings.Builder
	for _, of := range userRoles {
		where := "in the whole cluster"
		if of.namespace != "" {
			where = "in the namespace " + of.namespace
		}
		if of.role == "" {
			page.WriteString("without a role\n")
		} else {
			fmt.Fprintf(&page, "with the role %s %s\n", of.role, where)
		}
		client := tokenClient(t, c, "default", of.user)
		for _, r := range userRequests {
			fmt.Fprintf(&page, "  %-8s %s\n", map[bool]string{true: "may", false: "may not"}[r.mayBeSent(t, client)],
				strings.Join(strings.Fields(strings.Join([]string{r.verb, r.resource, r.name, map[bool]string{true: "in " + r.namespace}[r.namespace != ""]}, " ")), " "))
		}
	}
	wantGolden(t, filepath.Join("testdata", "rights", "users.txt"), page.String())
}

// mayBeSent reports whether the API server does more with the request than to forbid it.
func (r *userRequest) mayBeSent(t *testing.T, client dynamic.Interface) bool {
	t.Helper()
	gvr, _ := schema.ParseResourceArg(r.resource)
	if gvr == nil {
		t.Fatalf("%s is no resource", r.resource)
	}
	of := dynamic.ResourceInterface(client.Resource(*gvr))
	if r.namespace != "" {
		of = client.Resource(*gvr).Namespace(r.namespace)
	}
	var err error
	switch r.verb {
	case "get":
		_, err = of.Get(testContext(t), r.name, metav1.GetOptions{})
	case "list":
		_, err = of.List(testContext(t), metav1.ListOptions{})
	case "delete":
		err = of.Delete(testContext(t), r.name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Fatalf("%s %s %s: %v", r.verb, r.resource, r.name, err)
	}
	return !apierrors.IsForbidden(err)
}
