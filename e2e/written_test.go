// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// TestWritten checks that a pod from a file that pillion inject wrote is stored like the one that the webhook injects, whatever
// the default plugins of the API server add to it. What uninject leaves of the file is accepted as well, and is
// the same as before. TestHarmlessPlugins does the same with plugins that are off by default.
func TestWritten(t *testing.T) {
	t.Parallel()
	for name, c := range writtenPods() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t, env.Client, optedInNamespace(t))
		})
	}
}

// writtenPod is a pod that pillion inject writes, and what plugins of the API server know about its namespace.
type writtenPod struct {
	account string
	limits  bool
	edit    func(*corev1.PodSpec)
}

func writtenPods() map[string]writtenPod {
	tolerates := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))}
	}
	return map[string]writtenPod{
		"nothing":                     {},
		"an account with a secret":    {account: "secretive"},
		"an account without a secret": {account: "plain"},
		"a LimitRange":                {limits: true},
		"its own secret":              {account: "secretive", edit: func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}} }},
		"its own toleration":          {edit: func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{tolerates(corev1.TaintNodeUnreachable)} }},
		"its own resources": {limits: true, edit: func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
		}},
	}
}

func (c *writtenPod) check(t *testing.T, client kubernetes.Interface, ns string) {
	t.Helper()
	if c.limits {
		limitRange(t, ns, corev1.LimitRangeItem{
			Type:           corev1.LimitTypeContainer,
			Default:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		})
	}
	for account, secrets := range map[string][]corev1.LocalObjectReference{"secretive": {{Name: "registry"}}, "plain": nil} {
		object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}, ImagePullSecrets: secrets}
		if _, err := client.CoreV1().ServiceAccounts(ns).Create(testContext(t), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod := newPod("web", func(p *corev1.Pod) {
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		p.Namespace, p.Spec.ServiceAccountName = ns, c.account
		p.Annotations = map[string]string{"pillion.dev/templates": "written"}
		if c.edit != nil {
			c.edit(&p.Spec)
		}
	})
	var byWebhook *corev1.Pod
	eventually(t, "the API server knows the namespace, the ServiceAccount and the LimitRange", func(ctx context.Context) (err error) {
		byWebhook, err = client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err != nil:
			return err
		case findContainer(byWebhook, "written") == nil:
			return fmt.Errorf("written was not injected: %v", containerNames(byWebhook.Spec.InitContainers))
		case c.limits && byWebhook.Spec.Containers[0].Resources.Limits.Memory().IsZero():
			return errors.New("a container has no memory limit")
		}
		return nil
	})
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		t.Fatal(err)
	}
	delete(object, "status")
	manifest, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	written := writtenBy(t, "inject", manifest)
	if !slices.Equal(storedPod(t, client, ns, written), normalizePod(t, byWebhook)) {
		t.Errorf("the file gives\n%s\nand the webhook\n%s", storedPod(t, client, ns, written), normalizePod(t, byWebhook))
	}
	var before, after any
	if err := yaml.Unmarshal(manifest, &before); err != nil {
		t.Fatal(err)
	}
	left := writtenBy(t, "uninject", written)
	if err := yaml.Unmarshal(left, &after); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("uninject leaves (%v)\n%s\nof\n%s", err, left, manifest)
	}
}

// writtenBy returns what inject or uninject writes.
func writtenBy(t *testing.T, command string, manifest []byte) []byte {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), env.binary, command, "-f", "-", "-t", filepath.Join("testdata", "templates"))
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr, cmd.Env = bytes.NewReader(manifest), &said, append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s\n%s", command, err, &said, manifest)
	}
	return out
}

// storedPod returns the pod that the API server makes of a manifest.
func storedPod(t *testing.T, client kubernetes.Interface, ns string, manifest []byte) []byte {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(manifest, pod); err != nil {
		t.Fatal(err)
	}
	stored, err := client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(fmt.Errorf("%w\n%s", err, manifest))
	}
	return normalizePod(t, stored)
}

var generatedVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]+`)

// normalizePod returns what matters of a pod, without generated names and the order of lists whose order has no meaning.
func normalizePod(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	pod = pod.DeepCopy()
	delete(pod.Annotations, "pillion.dev/uninject")
	delete(pod.Annotations, "kubernetes.io/limit-ranger") // says what the plugin did, and in which call
	byText := func(a, b any) int { return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b)) }
	slices.SortFunc(pod.Spec.Tolerations, func(a, b corev1.Toleration) int { return byText(a.String(), b.String()) })
	slices.SortFunc(pod.Spec.Volumes, func(a, b corev1.Volume) int { return byText(a.Name, b.Name) })
	text, err := json.MarshalIndent(struct {
		Labels, Annotations map[string]string
		Spec                corev1.PodSpec
	}{pod.Labels, pod.Annotations, pod.Spec}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return generatedVolume.ReplaceAll(text, []byte("kube-api-access"))
}
