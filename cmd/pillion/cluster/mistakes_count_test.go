// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
)

const (
	podsOfShop     = "/api/v1/namespaces/shop/pods"
	accountsOfShop = "/api/v1/namespaces/shop/serviceaccounts/default"
	clusterPath    = "/apis/pillion.dev/v1alpha1/clustersidecartemplates"
	shopPath       = "/apis/pillion.dev/v1alpha1/namespaces/shop/sidecartemplates"
)

// pagedPods answers as the API server with so many pods: each page begins where the former one ended. Every third pod lacks the
// template agent, and all lack the others. Once, the token of the page that begins at expires is no longer valid.
func pagedPods(pods, expires int, pages *int) clitest.Answer {
	return func(r *http.Request) any {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		if from > 0 && from == expires {
			expires = 0
			return clitest.Failure{Code: http.StatusGone, Text: `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}`}
		}
		*pages++
		list := map[string]any{"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{}}
		to := min(from+limit, pods)
		if to < pods {
			list["metadata"] = map[string]any{"continue": strconv.Itoa(to)}
		}
		items := []any{}
		for n := from; n < to; n++ {
			containers := []any{map[string]any{"name": "app", "image": "app:1"}}
			annotations := map[string]any{}
			if n%3 != 0 {
				annotations["agent.pillion.dev/injected"] = "0123456789ab"
				containers = append(containers, map[string]any{"name": "agent", "image": "agent:1"})
			}
			items = append(items, map[string]any{
				"metadata": map[string]any{"name": fmt.Sprint("pod-", n), "namespace": "shop", "annotations": annotations},
				"spec":     map[string]any{"serviceAccountName": "default", "containers": containers},
			})
		}
		list["items"] = items
		return list
	}
}

// TestCountMissing checks the number of pods that lack each template: over pages and the parts that a count consists of, if the list
// has to start again in between, and if something cannot be read.
func TestCountMissing(t *testing.T) {
	t.Parallel()
	const pods, unknown = 2*mostCounted + 100, -1
	template := func(kind, namespace, name string, pod map[string]any) map[string]any {
		object := templateObject(kind, namespace, name)
		object["spec"] = map[string]any{"default": true, "pod": pod}
		return object
	}
	annotates := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": value}}}
	}
	agent := template("ClusterSidecarTemplate", "", "agent", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "agent", "image": "agent:1"}}}})
	reads := template("ClusterSidecarTemplate", "", "reads", annotates("${serviceAccount.annotations[?'a'].orValue('b')}"))
	local := template("SidecarTemplate", "shop", "local", annotates("b"))
	all := map[types.NamespacedName]int64{{Name: "agent"}: (pods + 2) / 3, {Name: "reads"}: pods, {Namespace: "shop", Name: "local"}: pods}
	without := func(name types.NamespacedName, n int64) map[types.NamespacedName]int64 {
		changed := maps.Clone(all)
		changed[name] = n
		return changed
	}
	for name, test := range map[string]struct {
		expires int
		change  clitest.API // nil: forbidden
		want    map[types.NamespacedName]int64
		pages   int
		err     bool
	}{
		"pages":               {want: all, pages: 5},
		"an expired page":     {expires: 3 * pageSize, want: all, pages: 3 + 5},
		"no ServiceAccounts":  {change: clitest.API{accountsOfShop: nil}, want: without(types.NamespacedName{Name: "reads"}, unknown), pages: 5},
		"unknown templates":   {change: clitest.API{shopPath: nil}},
		"pods cannot be read": {change: clitest.API{podsOfShop: nil}, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pages := 0
			api := clitest.API{
				"/apis/apps/v1/namespaces/pillion-system/deployments/pillion":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"},
				"/api/v1/namespaces/pillion-system/configmaps/pillion-templates": configMap("pillion-templates", nil),
				clusterPath: listOf(agent, reads), shopPath: listOf(local),
				accountsOfShop: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"}},
				podsOfShop:     pagedPods(pods, test.expires, &pages),
			}
			maps.Copy(api, test.change)
			o := &Options{}
			o.Flags(&cobra.Command{})
			o.Kubeconfig = clitest.Kubeconfig(t, api)
			c, err := o.Connect()
			clitest.Must(t, err)
			examiner := c.NewExaminer(func(types.NamespacedName) (time.Time, bool) { return time.Time{}, true }, time.Now)
			shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{LabelInject: Enabled}}}
			got, err := examiner.CountMissing(t.Context(), shop, "1", unknown)
			if (err != nil) != test.err || !maps.Equal(got, test.want) || pages != test.pages {
				t.Errorf("%v, %v, %d pages; want %v, an error: %t, %d pages", got, err, pages, test.want, test.err, test.pages)
			}
		})
	}
}

// answersAgain answers each request as before, so that a benchmark does not measure who makes the answers.
type answersAgain struct {
	http.Handler

	lock    sync.Mutex
	answers map[string][]byte
}

func (a *answersAgain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.lock.Lock()
	defer a.lock.Unlock()
	answer := a.answers[r.URL.String()]
	if answer == nil {
		recorder := httptest.NewRecorder()
		if a.Handler.ServeHTTP(recorder, r); recorder.Code != http.StatusOK {
			w.WriteHeader(recorder.Code)
			_, _ = w.Write(recorder.Body.Bytes())
			return
		}
		answer = recorder.Body.Bytes()
		a.answers[r.URL.String()] = answer
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// BenchmarkCountMissing measures what it costs the controller to count the pods of a namespace that lack a template: pods of usual size
// in Deployments of 100 pods, and one template that all have, or that all lack. The CPU time includes the sending of the pods.
func BenchmarkCountMissing(b *testing.B) {
	const pods = 10_000
	lose := func(_ int, pod map[string]any) {
		delete(pod["metadata"].(map[string]any), "annotations")
		delete(pod["spec"].(map[string]any), "initContainers")
	}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{LabelInject: Enabled}}}
	for name, test := range map[string]struct {
		alter []func(int, map[string]any)
		want  int64
	}{
		"all have it": {nil, 0},
		"all lack it": {[]func(int, map[string]any){lose}, pods},
	} {
		b.Run(name, func(b *testing.B) {
			api := http.NewServeMux()
			api.Handle("/", manyPods(b, pods, test.alter...))
			api.Handle("/apis/apps/v1/namespaces/pillion-system/deployments/pillion", clitest.API{
				"/apis/apps/v1/namespaces/pillion-system/deployments/pillion": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"},
			})
			c := clientOf(b, &answersAgain{Handler: api, answers: map[string][]byte{}})
			examiner := c.NewExaminer(func(types.NamespacedName) (time.Time, bool) { return time.Time{}, true }, time.Now)
			count := func() {
				found, err := examiner.CountMissing(b.Context(), shop, "1", -1)
				if n := found[types.NamespacedName{Name: "agent"}]; err != nil || found == nil || n != test.want {
					b.Fatal(found, err)
				}
			}
			count() // so that the answers are there
			before := cpu.Used(b)
			for b.Loop() {
				count()
			}
			used := cpu.Used(b) - before
			b.ReportMetric(float64(used.Microseconds())/float64(b.N)/pods, "CPU-µs/pod")
		})
	}
}
