// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTemplateChange measures how long it takes until new pods have a changed template, whichever replica
// they meet.
func TestTemplateChange(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	applyTemplate(t, ns, "slow")
	text, err := os.ReadFile("testdata/slow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const changes = 10
	var first, all []time.Duration
	for i := range changes {
		want := fmt.Sprintf("-ready=%dms", i+1)
		apply(t, ns, strings.Replace(string(text), "-ready=3s", want, 1))
		one, every := untilNew(t, ns, "slow", want)
		first, all = append(first, one), append(all, every)
	}
	figure(t, "from the end of kubectl apply to the first pod with the change", spread(first))
	figure(t, "from the end of kubectl apply to the last pod without it", spread(all))
}

// TestConfigMapChange measures the same for a template in the ConfigMap, whose files the kubelet updates.
func TestConfigMapChange(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	text, err := os.ReadFile("testdata/slow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"filed.yaml": strings.Replace(string(text), "name: slow\n", "name: filed\n", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "-n", pillionNamespace, "patch", "configmap", "pillion-templates", "--type=merge", "--patch", string(patch))
	first, all := untilNew(t, ns, "filed", "-ready=3s")
	figure(t, "from a change of the ConfigMap to the first pod with it", first)
	figure(t, "from a change of the ConfigMap to the last pod without it", all)
}

// untilNew creates pods until many in a row have a sidecar with this argument, and all replicas use the same
// templates. It returns how long it took to the first pod, and to the first of those in a row.
func untilNew(t *testing.T, ns, template, want string) (first, all time.Duration) {
	t.Helper()
	const inARow = 20
	started := time.Now()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{"pillion.dev/templates": template}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: StandIn}}},
	}
	eventually(t, "new pods have "+want, func(ctx context.Context) error {
		for row := range inARow {
			began := time.Since(started)
			made, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if len(made.Spec.InitContainers) == 0 || !slices.Contains(made.Spec.InitContainers[0].Args, want) {
				return errors.New("a pod is without it")
			}
			if first == 0 {
				first = began
			}
			if row == 0 {
				all = began
			}
		}
		return agree(ctx)
	})
	return first, all
}

// agree returns an error unless all replicas use the same templates. API servers keep their connections, so
// pods alone do not show that.
func agree(ctx context.Context) error {
	found, err := pods(ctx, pillionNamespace, pillionSelector)
	if err != nil {
		return err
	}
	revisions := map[string]bool{}
	for _, pod := range found {
		text, err := admin(ctx, &pod, "/readyz?verbose")
		if err != nil {
			return err
		}
		revision := revisionPattern.FindString(text)
		if revision == "" {
			return fmt.Errorf("%s does not report its templates: %s", pod.Name, text)
		}
		revisions[revision] = true
	}
	if len(revisions) != 1 {
		return fmt.Errorf("the replicas use the templates of %v", slices.Collect(maps.Keys(revisions)))
	}
	return nil
}

// admin returns what a replica answers at its port for operators.
func admin(ctx context.Context, pod *corev1.Pod, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

var revisionPattern = regexp.MustCompile(`revision [0-9a-f]+`)

// spread describes durations.
func spread(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("median %d ms, slowest of %d: %d ms", d[len(d)/2].Milliseconds(), len(d), d[len(d)-1].Milliseconds())
}
