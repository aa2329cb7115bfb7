// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// published are the ConfigMaps of templates of two replicas.
type published struct {
	*replicas
	component, selector string
}

// TestTemplateConfigMaps creates, changes, breaks and deletes ConfigMaps with templates. Injection
// follows on all replicas, at once and in the same way.
func TestTemplateConfigMaps(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &published{replicas: &replicas{manifests: env.manifests}, component: filepath.Join(root, "manifests", "components", "template-configmaps"), selector: "e2e.example.com/templates=" + strings.ToLower(t.Name())}
	var endpoints []cluster.Endpoint
	for i := range p.pillions {
		p.pillions[i] = p.start(t)
		endpoints = append(endpoints, p.pillions[i].Endpoint)
	}
	p.mutate, p.validate = newProxy(t, endpoints), newProxy(t, endpoints)
	p.install(t)

	p.wantInjected(t)
	a := p.create(t, "a", "one")
	p.wantInjected(t, "one")
	c := p.create(t, "c", "three")
	a = p.update(t, a, "one", "two")
	p.wantInjected(t, "one", "three", "two")

	// A new one that is broken, and one that takes a name which is taken, are left out.
	b := p.create(t, "b", "four", "!")
	d := p.create(t, "d", "one", "five")
	p.wantInjected(t, "five", "one", "three", "two")
	p.wantSaid(t, p.pillions[:], "configmap/b is rejected since ", "(none of it is used): configmap/b/bad.yaml:1: ", "the template one is in configmap/a/one.yaml too")
	for _, pillion := range p.pillions {
		if said := fmt.Sprint(pillion.Logged("templates are invalid")); !strings.Contains(said, "rejected:configmap/b (none of it is used)") {
			t.Errorf("its log does not name the ConfigMap: %s", said)
		}
	}

	// The last valid content of a ConfigMap stays in use. A replica that starts now does not have it, and is ready.
	a = p.update(t, a, "six", "!")
	p.wantSaid(t, p.pillions[:], "configmap/a is rejected since ", "(its last valid content is used): configmap/a/bad.yaml:1: ")
	p.wantInjected(t, "five", "one", "three", "two")
	late := p.start(t)
	p.wantSaid(t, []*cluster.Pillion{late}, "configmap/a is rejected since ", "(none of it is used): configmap/a/bad.yaml:1: ")

	// After the fix all replicas agree again, including the late one.
	a = p.update(t, a, "six")
	b = p.update(t, b, "four")
	p.wantInjected(t, "five", "four", "one", "six", "three")
	eventually(t, "the late replica has the same templates", func(ctx context.Context) error {
		_, said, err := late.Readiness(ctx)
		if all := p.revisions(ctx, t); err != nil || !strings.Contains(said, "revision "+all[0]+", 5 in use\n") {
			return fmt.Errorf("revisions %v: %s, %w", all, said, err)
		}
		return nil
	})

	for _, m := range []*corev1.ConfigMap{a, b, c, d} {
		if err := env.Client.CoreV1().ConfigMaps(m.Namespace).Delete(testContext(t), m.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	p.wantInjected(t)
}

func (p *published) start(t *testing.T) *cluster.Pillion {
	t.Helper()
	pillion, err := env.StartSelecting(t.Context(), p.component, env.binary, p.selector)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pillion.Stop(); err != nil {
			t.Errorf("pillion serve after SIGTERM: %v\n%s", err, pillion.LogTail())
		}
	})
	return pillion
}

// templateData has a key for each of the names, with a template that annotates every pod; "!" is broken.
func templateData(names []string) map[string]string {
	data := map[string]string{}
	for _, name := range names {
		if name == "!" {
			data["bad.yaml"] = "kind: Nonsense\n"
			continue
		}
		data[name+".yaml"] = "apiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: " + name + "}\n" +
			"spec: {default: true, pod: {metadata: {annotations: {published.example.com/" + name + ": here}}}}\n"
	}
	return data
}

func (p *published) create(t *testing.T, name string, templates ...string) *corev1.ConfigMap {
	t.Helper()
	key, value, _ := strings.Cut(p.selector, "=")
	m, err := env.Client.CoreV1().ConfigMaps("pillion-system").Create(testContext(t), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{key: value}}, Data: templateData(templates),
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (p *published) update(t *testing.T, m *corev1.ConfigMap, templates ...string) *corev1.ConfigMap {
	t.Helper()
	m.Data = templateData(templates)
	m, err := env.Client.CoreV1().ConfigMaps(m.Namespace).Update(testContext(t), m, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// wantInjected waits until each replica injects these templates and the other one accepts the result.
func (p *published) wantInjected(t *testing.T, names ...string) {
	t.Helper()
	since := time.Now()
	for first := range p.pillions {
		eventually(t, fmt.Sprintf("replica %d injects %v", first, names), func(ctx context.Context) error {
			p.startAt(first, 1-first)
			pod, err := env.Client.CoreV1().Pods(p.namespace).Create(ctx, newPod("web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			var got []string
			for key := range maps.Keys(pod.Annotations) {
				if name, ok := strings.CutPrefix(key, "published.example.com/"); ok {
					got = append(got, name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, names) {
				return fmt.Errorf("it injects %v", got)
			}
			return nil
		})
	}
	t.Logf("%v after %s", names, time.Since(since).Round(time.Millisecond))
	if all := p.revisions(testContext(t), t); all[0] != all[1] {
		t.Errorf("the replicas have the revisions %v", all)
	}
}

func (p *published) wantSaid(t *testing.T, pillions []*cluster.Pillion, parts ...string) {
	t.Helper()
	for _, pillion := range pillions {
		eventually(t, fmt.Sprintf("it says %q", parts), func(ctx context.Context) error {
			status, said, err := pillion.Readiness(ctx)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("it is not ready: %s", said)
			}
			for _, part := range parts {
				if err == nil && !strings.Contains(said, part) {
					err = fmt.Errorf("it does not say %q: %s", part, said)
				}
			}
			return err
		})
	}
}
