// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const roleAnnotation = "eks.amazonaws.com/role-arn"

// plainIdentity is a template that reads no ServiceAccount, and irsa one that works as AWS IRSA.
const (
	plainIdentity = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: irsa}
spec: {required: true, pod: {metadata: {annotations: {example.com/role: none}}}}
`
	irsa = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: irsa}
spec:
  required: true
  params: [{name: audience, default: sts.amazonaws.com, overridableBy: [Pod, ServiceAccount, Namespace]}]
  variables: [{name: role, expression: "serviceAccount.annotations[?'eks.amazonaws.com/role-arn'].orValue('none')"}]
  pod:
    metadata: {annotations: {example.com/role: "${variables.role}"}}
    spec:
      volumes:
      - name: aws-iam-token
        projected: {sources: [{serviceAccountToken: {path: token, audience: "${params.audience}", expirationSeconds: 86400}}]}
  forEachContainer:
  - add:
      env:
      - {name: AWS_ROLE_ARN, value: "${variables.role}"}
      - {name: AWS_WEB_IDENTITY_TOKEN_FILE, value: /var/run/secrets/eks.amazonaws.com/serviceaccount/token}
      volumeMounts: [{name: aws-iam-token, mountPath: /var/run/secrets/eks.amazonaws.com/serviceaccount, readOnly: true}]
`
)

// identities are two replicas, with the permissions of the shipped manifests, that share a folder.
type identities struct {
	*replicas
	folder string
	pods   int
}

// TestServiceAccount changes the templates so that they begin to read ServiceAccounts, and then the
// ServiceAccount. No pod is denied, and each gets the role that its ServiceAccount has.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	i := &identities{replicas: &replicas{manifests: env.manifests}, folder: t.TempDir()}
	i.write(t, plainIdentity)
	var endpoints []cluster.Endpoint
	for k := range i.pillions {
		pillion, err := env.StartPillion(t.Context(), env.binary, i.folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := pillion.Stop(); err != nil {
				t.Errorf("pillion serve after SIGTERM: %v\n%s", err, pillion.LogTail())
			}
		})
		i.pillions[k] = pillion
		endpoints = append(endpoints, pillion.Endpoint)
	}
	i.mutate, i.validate = newProxy(t, endpoints), newProxy(t, endpoints)
	i.install(t)
	i.wantReady(t, "no template reads them")

	i.account(t, "web", "arn:aws:iam::1:role/first")
	i.write(t, irsa)
	i.wantRole(t, "web", "arn:aws:iam::1:role/first")
	i.wantReady(t, " known")
	pod := i.create(t, "web")
	var token *corev1.ServiceAccountTokenProjection
	for _, v := range pod.Spec.Volumes {
		if v.Name == "aws-iam-token" {
			token = v.Projected.Sources[0].ServiceAccountToken
		}
	}
	if token == nil || token.Audience != "sts.amazonaws.com" || !slices.Contains(mountPaths(pod.Spec.Containers[0]), "/var/run/secrets/eks.amazonaws.com/serviceaccount") {
		t.Errorf("the pod has the token %v and the mounts %v", token, mountPaths(pod.Spec.Containers[0]))
	}

	// It changes many times, while pods are created. No pod is denied.
	for k := range 20 {
		role := fmt.Sprint("arn:aws:iam::1:role/", k)
		i.patch(t, "web", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, roleAnnotation, role))
		i.create(t, "web")
	}
	i.wantRole(t, "web", "arn:aws:iam::1:role/19")
	i.patch(t, "web", `{"metadata":{"annotations":{"irsa.pillion.dev/audience":"of-the-account"}}}`)
	eventually(t, "the ServiceAccount sets the parameter", func(context.Context) error {
		for _, v := range i.create(t, "web").Spec.Volumes { //nolint:contextcheck // it has the context of the test
			if v.Name == "aws-iam-token" && v.Projected.Sources[0].ServiceAccountToken.Audience == "of-the-account" {
				return nil
			}
		}
		return fmt.Errorf("it does not")
	})

	// A pod that is created at once after its ServiceAccount waits for it.
	for k := range 10 {
		name := fmt.Sprint("new-", k)
		i.account(t, name, "arn:aws:iam::1:role/"+name)
		if got := i.create(t, name).Annotations["example.com/role"]; got != "arn:aws:iam::1:role/"+name {
			t.Errorf("the pod of %s has the role %q", name, got)
		}
	}
}

func (i *identities) write(t *testing.T, template string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "irsa.yaml")
	if err := os.WriteFile(next, []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(i.folder, "irsa.yaml")); err != nil {
		t.Fatal(err)
	}
}

func (i *identities) account(t *testing.T, name, role string) {
	t.Helper()
	_, err := env.Client.CoreV1().ServiceAccounts(i.namespace).Create(testContext(t), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{roleAnnotation: role}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (i *identities) patch(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := env.Client.CoreV1().ServiceAccounts(i.namespace).Patch(testContext(t), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// create creates a pod, which must not be denied.
func (i *identities) create(t *testing.T, account string) *corev1.Pod {
	t.Helper()
	i.pods++
	return createPod(t, i.namespace, newPod(fmt.Sprint("pod-", i.pods), func(p *corev1.Pod) { p.Spec.ServiceAccountName = account }))
}

// wantRole waits until pods get the role by both replicas.
func (i *identities) wantRole(t *testing.T, account, role string) {
	t.Helper()
	inRow := 0
	eventually(t, "the role "+role, func(context.Context) error {
		if got := i.create(t, account).Annotations["example.com/role"]; got != role { //nolint:contextcheck // it has the context of the test
			inRow = 0
			return fmt.Errorf("it is %q", got)
		}
		if inRow++; inRow < 6 {
			return fmt.Errorf("%d pods in a row have it", inRow)
		}
		return nil
	})
}

func (i *identities) wantReady(t *testing.T, detail string) {
	t.Helper()
	for _, p := range i.pillions {
		status, said, err := p.Readiness(testContext(t))
		if err != nil || status != http.StatusOK {
			t.Errorf("not ready: %s %v", said, err)
		}
		for line := range strings.Lines(said) {
			if strings.Contains(line, "serviceaccounts") && !strings.Contains(line, detail) {
				t.Errorf("%s lacks %q", line, detail)
			}
		}
		if !strings.Contains(said, "serviceaccounts") {
			t.Errorf("no line about ServiceAccounts: %s", said)
		}
	}
}
