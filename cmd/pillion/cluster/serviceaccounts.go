// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/templates/request"
)

// serviceAccounts reads the ServiceAccounts that templates read, each once.
type serviceAccounts struct {
	*Client
	ctx   context.Context //nolint:containedctx // the engine has no context to pass
	note  func(string)
	known map[string]request.ServiceAccount
}

func (c *Client) serviceAccounts(ctx context.Context, note func(string)) request.ServiceAccounts {
	return &serviceAccounts{c, ctx, note, map[string]request.ServiceAccount{}}
}

// ServiceAccount implements [request.ServiceAccounts]. It notes why one cannot be read.
func (s *serviceAccounts) ServiceAccount(namespace, name string) request.ServiceAccount {
	key := namespace + "/" + name
	if account, ok := s.known[key]; ok {
		return account
	}
	account := request.ServiceAccount{Name: name}
	object, err := s.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(namespace).Get(s.ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		s.note(fmt.Sprintf("You are not allowed to get serviceaccounts%s, so templates that read them are shown as skipped: ask for the verb get on the resource serviceaccounts.", InNamespace(namespace)))
	case apierrors.IsNotFound(err): // the decision names it
	case err != nil:
		s.note(fmt.Sprintf("The ServiceAccount %s%s cannot be read: %s.", name, InNamespace(namespace), err))
	default:
		account.Labels, account.Annotations, account.Known = object.GetLabels(), object.GetAnnotations(), true
		account.NoToken = object.Object["automountServiceAccountToken"] == false
	}
	s.known[key] = account
	return account
}
