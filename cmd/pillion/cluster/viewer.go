// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/manifests"
)

// viewerCommand returns the command with which an administrator gives the user of this client the rights that explain, status and
// diff need outside of the user's namespaces.
func (c *Client) viewerCommand(ctx context.Context) string {
	subject, binding := "--user=USER", "NAME"
	if user := c.userName(ctx); user != "" {
		subject, binding = "--user="+cli.Quote(user), unnamed.ReplaceAllString(strings.ToLower(user), "-")
		if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
			subject = "--serviceaccount=" + cli.Quote(account)
		}
	}
	binding = strings.Trim(binding[:min(len(binding), maxBinding)], "-")
	return fmt.Sprintf("kubectl create clusterrolebinding %s-%s --clusterrole=%[1]s %[3]s", manifests.ViewerRole, binding, subject)
}

// maxBinding is how many characters of a user's name the name of the binding contains. Names of objects may have at most 253
// characters.
const maxBinding = 200

// unnamed matches characters that the name of an object cannot have.
var unnamed = regexp.MustCompile(`[^a-z0-9]+`)

// userName asks the API server who the user is: a SelfSubjectReview, which every user may create. It returns "" without an answer.
func (c *Client) userName(ctx context.Context) string {
	review := &unstructured.Unstructured{Object: map[string]any{}}
	review.SetAPIVersion(authenticationv1.SchemeGroupVersion.String())
	review.SetKind("SelfSubjectReview")
	answer, err := c.Resource(authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews")).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	name, _, _ := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	return name
}
