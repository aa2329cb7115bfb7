// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// Rows of lists that grow together. A row tests all pairs in it: work that takes the
// product of two lengths differs clearly from work that takes their sum.
const (
	few, times = 100, 8
	perRow     = 40
	// Three doublings, each at most 2.6 times the work.
	mostGrowth = 2.6 * 2.6 * 2.6
)

// row is one comparison: the lists that grow, and the seed of their content.
type row struct {
	seed  uint64
	lists []podList
	few   int
}

// TestGrowth checks that to double any two lists or maps of a pod at most doubles the work, on
// every path. It draws rows until any two lists of the Go type have grown together.
func TestGrowth(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector, it takes many times the CPU time; make verify runs it without")
	}
	size.SkipUnlessFull(t, "TestGrowthTogether has the lists that the engine reads")
	lists, edges := podLists(), growthEdges(t)
	together := map[[2]int]bool{}
	pairs, rows := len(lists)*(len(lists)-1)/2, uint64(0)
	for ; len(together) < pairs; rows++ {
		r := row{seed: rows, few: few}
		drawn := drawRow(rows, len(lists), together)
		for i, a := range drawn {
			r.lists = append(r.lists, lists[a])
			for _, b := range drawn[:i] {
				together[pair(a, b)] = true
			}
		}
		checkGrowth(t, edges, r)
	}
	t.Logf("%d rows for %d pairs of %d lists", rows, pairs, len(lists))
}

// TestGrowthTogether checks the same for most of the lists that the engine reads, all at once, with
// more kinds of items.
func TestGrowthTogether(t *testing.T) {
	edges := growthEdges(t)
	for seed := range size.Choose(t, 4, 16) {
		checkGrowth(t, edges, drawCore(uint64(seed)))
	}
}

// FuzzGrowth is TestGrowthTogether for any seed. An input runs one comparison, because all of them together may take
// longer than the 10 s that the fuzzer waits for an input on a busy machine.
func FuzzGrowth(f *testing.F) {
	edges := growthEdges(f)
	for which := range growthComparisons() {
		f.Add(uint64(1000), uint8(which))
	}
	f.Fuzz(func(t *testing.T, seed uint64, which uint8) {
		all := growthComparisons()
		all[int(which)%len(all)](t, edges, drawCore(seed))
	})
}

func pair(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// drawRow draws random lists. It prefers those that have grown together with few lists of the row.
func drawRow(seed uint64, lists int, together map[[2]int]bool) (drawn []int) {
	random := rand.New(rand.NewPCG(seed, 1))
	for len(drawn) < perRow {
		best, most := -1, -1
		for range 20 {
			i, fresh := random.IntN(lists), 0
			if slices.Contains(drawn, i) {
				continue
			}
			for _, other := range drawn {
				if !together[pair(i, other)] {
					fresh++
				}
			}
			if fresh > most {
				best, most = i, fresh
			}
		}
		if best >= 0 {
			drawn = append(drawn, best)
		}
	}
	return drawn
}

// core are the lists that templates add to or read.
const core = ` metadata.annotations metadata.labels metadata.ownerReferences spec.volumes spec.volumes[].projected.sources
	spec.tolerations spec.imagePullSecrets spec.hostAliases spec.hostAliases[].hostnames spec.securityContext.supplementalGroups
	spec.resources.requests spec.CONTAINERS spec.CONTAINERS[].env spec.CONTAINERS[].envFrom spec.CONTAINERS[].args
	spec.CONTAINERS[].volumeMounts spec.CONTAINERS[].volumeDevices spec.CONTAINERS[].ports spec.CONTAINERS[].resources.requests
	spec.CONTAINERS[].resources.limits spec.CONTAINERS[].securityContext.capabilities.add `

func drawCore(seed uint64) row {
	r := row{seed: seed, few: 2 * few}
	random := rand.New(rand.NewPCG(seed, 1))
	known := strings.Fields(strings.ReplaceAll(core, "CONTAINERS", "containers") + strings.ReplaceAll(core, "CONTAINERS", "initContainers"))
	for _, l := range podLists() {
		if slices.Contains(known, l.name()) && random.IntN(4) > 0 {
			r.lists = append(r.lists, l)
		}
	}
	return r
}

func checkGrowth(t *testing.T, edges []*edge, r row) {
	t.Helper()
	for _, compare := range growthComparisons() {
		compare(t, edges, r)
	}
}

// growthComparisons compare the work for a small and a large pod, each in another part of the program.
func growthComparisons() (all []func(*testing.T, []*edge, row)) {
	for _, path := range []string{webhook.PathMutate, webhook.PathValidate, webhook.PathShadow, webhook.PathAdvise} {
		all = append(all, func(t *testing.T, edges []*edge, r row) {
			t.Helper()
			e := edges[r.seed%uint64(len(edges))]
			work := func(few int) func() { return e.answering(t, path, r.pod(few), few) }
			compareGrowth(t, r, path, work(r.few), work(r.few*times))
		})
	}
	return append(all, func(t *testing.T, edges []*edge, r row) { // its pods are larger than those that advise passes to it
		t.Helper()
		e := edges[r.seed%uint64(len(edges))]
		fits := func(few int) func() {
			pod := r.pod(few)
			return func() { e.Fit.Misfits(nil, e.Limits.Limits(""), []byte(`{}`), pod) }
		}
		compareGrowth(t, r, "fit", fits(r.few), fits(r.few*times))
	})
}

func compareGrowth(t *testing.T, r row, what string, small, large func()) {
	t.Helper()
	was, is := cpuOf(t, small, 1), cpuOf(t, large, 1)
	for range 3 { // a disturbed measurement is repeated
		if grown(was, is) < mostGrowth {
			return
		}
		was, is = cpuOf(t, small, 5), min(is, cpuOf(t, large, 2))
	}
	names := make([]string, len(r.lists))
	for i, l := range r.lists {
		names[i] = l.name()
	}
	t.Errorf("%s: %d times as many items take %.1f times the time (%v); seed %d: %v", what, times, grown(was, is), is, r.seed, names)
}

func grown(was, is time.Duration) float64 { return float64(is) / float64(was) }

// cpuOf returns the least CPU time of a few runs on one thread, without garbage collection.
func cpuOf(t *testing.T, run func(), runs int) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := time.Hour
	for range runs {
		before := cpu.Used(t)
		run()
		least = min(least, cpu.Used(t)-before)
	}
	return max(least, 200*time.Microsecond)
}

// growthEdges are handlers with templates of different shapes.
func growthEdges(t testing.TB) (all []*edge) {
	for _, texts := range growthTemplates() {
		e := newEdge(load(t, texts...))
		e.Log, e.Limiter = discard(), nil
		e.Fit = evaluator(t)
		e.Limits = knownLimits{limits.Limits{
			Ranges: []*corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
				{Type: corev1.LimitTypePod, Max: quantities("cpu", "1")},
				{Type: corev1.LimitTypeContainer, Max: quantities("cpu", "1"), Default: quantities("memory", "1Gi")},
			}}}},
			Quotas: []*corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: quantities("requests.cpu", "1")}}},
		}}
		all = append(all, e)
	}
	return all
}

func quantities(name corev1.ResourceName, q string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(q)}
}

// growthTemplates read and extend every list and map of a pod.
func growthTemplates() [][]string {
	const head = "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: NAME}\nspec:\n  default: true\n"
	const pod = `  match: {hostNetwork: true}
  params: [{name: p, default: "1"}]
  pod:
    metadata: {annotations: {a: b}, labels: {NAME.pillion.dev/c: d}}
    spec:
      initContainers:
      - {name: NAME, image: i, restartPolicy: Always, env: [{name: NAME, value: x}, {name: B, value: "${params.p}"}], volumeMounts: [{name: NAME, mountPath: /NAME}], ports: [{containerPort: 80, hostPort: 80, name: NAME}]}
      containers:
      - {name: NAME-two, image: i, args: [a], resources: {requests: {cpu: 1m}, limits: {cpu: 1m}}, volumeMounts: [{name: NAME, mountPath: /NAME}], securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
      volumes: [{name: NAME, emptyDir: {}}, {name: NAME-two, emptyDir: {}}]
      tolerations: [{key: NAME, operator: Exists}]
      imagePullSecrets: [{name: NAME}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [NAME]}]
      securityContext: {fsGroup: 1, supplementalGroups: [7]}
`
	const each = `  forEachContainer:
  - initContainers: true
    add:
      env: [{name: NAME, value: "x"}, {name: TWO, value: z}]
      envFrom: [{configMapRef: {name: NAME, optional: true}}]
      volumeMounts: [{name: NAME, mountPath: /var/NAME}, {name: NAME-two, mountPath: /var/NAME-two}]
      ports: [{containerPort: 81, name: NAME}]
      resources: {requests: {cpu: 1m}}
      securityContext: {allowPrivilegeEscalation: false}
`
	const protect = "  validate: {mode: Deny, protect: [image, command, args, env, volumeMounts, ports, resources, securityContext, lifecycle]}\n"
	const cel = `  match: {hostNetwork: true, condition: "!pod.spec.volumes.exists(v, v.name == 'no') && pod.spec.tolerations.size() >= 0"}
  forEachContainer:
  - where: container.env.all(e, e.name != 'no') && container.name != 'no'
    add: {env: [{name: NAME, value: "${string(pod.spec.volumes.size() + pod.metadata.labels.size())}"}]}
`
	named := func(name string, parts ...string) string {
		return strings.ReplaceAll(head+strings.Join(parts, ""), "NAME", name)
	}
	return [][]string{
		{named("greedy", pod, each, protect)},
		{named("greedy", pod, each, "  serviceAccountToken: None\n"), named("other", pod, each, "  order: 1\n  placement: {containers: First, initContainers: First}\n  required: true\n")},
		{named("greedy", pod, protect, "  serviceAccountToken: Inherit\n  placement: {containers: First, initContainers: First}\n"), named("other", cel)},
		{named("greedy", strings.Replace(pod, ", hostPort: 80", "", 1), each), named("other", onlyPod(pod)), named("third", onlyPod(pod))},
	}
}

// onlyPod changes the ports of a template, because templates in one set must not use the same ones.
func onlyPod(pod string) string {
	return strings.ReplaceAll(strings.Replace(pod, ", hostPort: 80", "", 1), "80", "90")
}

// pod returns a pod with n items in each list of the row.
func (r row) pod(n int) []byte {
	g := &grower{Rand: rand.New(rand.NewPCG(r.seed, 2)), n: n, growing: slices.Clone(r.lists)}
	return text(g.pod())
}

// answering returns a function that answers a request to a path about a pod, or about a
// workload of such pods with a number of claims.
func (e *edge) answering(t *testing.T, path string, pod []byte, claims int) func() {
	t.Helper()
	body := sampleBody(pod)
	if path == webhook.PathAdvise {
		workload := fmt.Sprintf(`{"spec":{"template":%s,"volumeClaimTemplates":[%s]}}`, pod, many(claims, `{"metadata":{"name":"claim%d"}}`))
		body = advised("apps/v1", "StatefulSet", "CREATE", workload, "null")
	}
	return func() { e.ServeHTTP(&discardWriter{header: http.Header{}}, post(t, path, body)) }
}
