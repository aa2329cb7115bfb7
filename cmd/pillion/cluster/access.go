// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/manifests"
)

// accessReviews is how many reviews are sent at the same time.
const accessReviews = 8

// deniedTo returns the rights that a ServiceAccount of Pillion lacks.
func (c *Client) deniedTo(ctx context.Context, account string, needed []manifests.Right) ([]manifests.Right, error) {
	user := "system:serviceaccount:" + c.system + ":" + account
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + c.system, "system:authenticated"}
	return c.deniedRights(ctx, needed, "subjectaccessreviews", func(a *authorizationv1.ResourceAttributes) any {
		return authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: a, User: user, Groups: groups}}
	})
}

// deniedToUser returns the rights that the user lacks.
func (c *Client) deniedToUser(ctx context.Context, needed []manifests.Right) ([]manifests.Right, error) {
	return c.deniedRights(ctx, needed, "selfsubjectaccessreviews", func(a *authorizationv1.ResourceAttributes) any {
		return authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a}}
	})
}

// deniedRights sends a review for each right, and returns the rights that are denied, in order.
func (c *Client) deniedRights(ctx context.Context, needed []manifests.Right, resource string, review func(*authorizationv1.ResourceAttributes) any) (denied []manifests.Right, err error) {
	allowed, errs := make([]bool, len(needed)), make([]error, len(needed))
	free := make(chan struct{}, accessReviews)
	var all sync.WaitGroup
	for i, right := range needed {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			name, subresource, _ := strings.Cut(right.Resource, "/")
			allowed[i], errs[i] = c.isAllowed(ctx, resource, review(&authorizationv1.ResourceAttributes{
				Namespace: right.Namespace, Verb: right.Verb, Group: right.Group, Resource: name, Subresource: subresource, Name: right.Name,
			}))
		})
	}
	all.Wait()
	for i, right := range needed {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if !allowed[i] {
			denied = append(denied, right)
		}
	}
	return denied, nil
}

// isAllowed sends one review.
func (c *Client) isAllowed(ctx context.Context, resource string, review any) (bool, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&review)
	if err != nil {
		return false, err
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(authorizationv1.SchemeGroupVersion.String())
	object.SetKind(map[string]string{"subjectaccessreviews": "SubjectAccessReview", "selfsubjectaccessreviews": "SelfSubjectAccessReview"}[resource])
	answer, err := c.Resource(authorizationv1.SchemeGroupVersion.WithResource(resource)).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	is, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return is, err
}

// accountRights reviews the rights of both ServiceAccounts. SelfSigned is set if Pillion creates its
// certificate.
func (c *Client) accountRights(ctx context.Context, selfSigned bool) (check.AccountRights, error) {
	r := check.AccountRights{Denied: map[string][]manifests.Right{}, Excess: map[string][]manifests.Right{}}
	for account, rights := range map[string]func() (manifests.Rights, error){
		manifests.Name:           func() (manifests.Rights, error) { return manifests.ServerRights(selfSigned) },
		manifests.ControllerName: manifests.ControllerRights,
	} {
		needed, err := rights()
		if err != nil {
			return r, err
		}
		all := needed.Expand(c.system)
		r.Checked += len(all)
		denied, err := c.deniedTo(ctx, account, all)
		if r.Unknown, err = whyForbidden(err, "create", "subjectaccessreviews", ""); err != nil || r.Unknown != "" {
			return r, err
		}
		r.Denied[account] = denied
		unneeded := check.Unneeded()
		if denied, err = c.deniedTo(ctx, account, unneeded); err != nil {
			return r, err
		}
		r.Excess[account] = slices.DeleteFunc(unneeded, func(a manifests.Right) bool { return slices.Contains(denied, a) })
	}
	for _, limited := range manifests.LimitedRights() {
		denied, err := c.deniedTo(ctx, limited.Account, []manifests.Right{limited.Right})
		if err != nil {
			return r, err
		}
		if len(denied) > 0 {
			continue
		}
		inForce, err := c.policyInForce(ctx, limited.Policy)
		why, err := whyForbidden(err, "get", "validatingadmissionpolicies and validatingadmissionpolicybindings", "")
		if err != nil {
			return r, err
		}
		if !inForce {
			r.Unlimited = append(r.Unlimited, check.Unlimited{Limited: limited, Unknown: why})
		}
	}
	return r, nil
}

// policyInForce reports whether a ValidatingAdmissionPolicy exists, and its binding of the same name denies requests.
func (c *Client) policyInForce(ctx context.Context, name string) (bool, error) {
	resource := admissionregistrationv1.SchemeGroupVersion.WithResource
	_, err := getObject[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, c.Resource(resource("validatingadmissionpolicies")), name)
	if err == nil {
		var binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
		binding, err = getObject[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, c.Resource(resource("validatingadmissionpolicybindings")), name)
		if err == nil {
			return binding.Spec.PolicyName == name && slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny), nil
		}
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return false, err
}

// whyForbidden returns the sentence about a missing right, or any other error.
func whyForbidden(err error, verb, resource, namespace string) (string, error) {
	if apierrors.IsForbidden(err) {
		return check.NotAllowed + verb + " " + resource + InNamespace(namespace), nil
	}
	return "", err
}
