// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// greedy reads, and adds to, every kind of list that may be long.
const greedy = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: greedy}
spec:
  default: true
  params: [{name: p, default: "1"}]
  match: {hostNetwork: true}
  validate: {mode: Deny, protect: [env, volumeMounts, ports]}
  pod:
    metadata: {annotations: {a: b}, labels: {greedy.pillion.dev/c: d}}
    spec:
      initContainers:
      - {name: greedy, image: i, restartPolicy: Always, env: [{name: GREEDY, value: x}], volumeMounts: [{name: greedy, mountPath: /greedy}], ports: [{containerPort: 80, hostPort: 80, name: greedy}]}
      volumes: [{name: greedy, emptyDir: {}}, {name: greedier, emptyDir: {}}]
      tolerations: [{key: greedy, operator: Exists}]
      imagePullSecrets: [{name: greedy}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [greedy]}]
  forEachContainer:
  - initContainers: true
    add:
      env: [{name: GREEDY, value: "${string(has(pod.spec.runtimeClassName))}"}, {name: GREEDIER, value: z}]
      ports: [{containerPort: 81, name: greedy}]
      volumeMounts: [{name: greedy, mountPath: /var/greedy}, {name: greedier, mountPath: /var/greedier}]
      securityContext: {allowPrivilegeEscalation: false}
`

// TestWorkGrowsWithThePod checks that eight times as many items take about eight times as much
// work, not 64 times. It compares processor time, because a superfluous loop over a list may
// allocate nothing.
func TestWorkGrowsWithThePod(t *testing.T) {
	set, err := templates.Compile(templates.File{Path: "greedy.yaml", Data: []byte(greedy)},
		templates.File{Path: "other.yaml", Data: []byte(strings.NewReplacer("greed", "other", "GREED", "OTHER", "8", "9", "10.0.0.1", "10.0.0.2").Replace(greedy))})
	if err != nil {
		t.Fatal(err)
	}
	injector := inject.New(set)
	const token = `{"name":"kube-api-access-%[1]d","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}`
	const mine = `"annotations":{"greedy.pillion.dev/customize":"true"}`
	// %[1]d in an item is its number. Some costs need two long lists. webhook.TestGrowth compares
	// all pairs of lists. These are the pairs that once took too long.
	for name, pod := range map[string][3]string{
		"env":                          {`{"metadata":{},"spec":{"containers":[{"name":"app","env":[ITEMS]}]}}`, `{"name":"E%[1]d","value":"v"}`},
		"mounts":                       {`{"metadata":{},"spec":{"containers":[{"name":"app","volumeMounts":[ITEMS]}]}}`, `{"name":"v","mountPath":"/m/%[1]d"}`},
		"token mounts":                 {`{"metadata":{"annotations":{"greedy.pillion.dev/customize":"true"}},"spec":{"containers":[{"name":"app"}],"initContainers":[{"name":"greedy","volumeMounts":[ITEMS]}]}}`, `{"name":"kube-api-access-%[1]d","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}`},
		"ports":                        {`{"metadata":{},"spec":{"hostNetwork":true,"containers":[{"name":"app","ports":[ITEMS]}]}}`, `{"containerPort":1%[1]d,"name":"p%[1]d"}`},
		"containers":                   {`{"metadata":{},"spec":{"containers":[ITEMS]}}`, `{"name":"c%[1]d","ports":[{"hostPort":1%[1]d}]}`},
		"init containers":              {`{"metadata":{},"spec":{"containers":[{"name":"app"}],"initContainers":[ITEMS]}}`, `{"name":"c%[1]d","restartPolicy":"Always"}`},
		"same containers":              {`{"metadata":{"annotations":{"greedy.pillion.dev/injected":"x"}},"spec":{"containers":[{"name":"app"}],"initContainers":[ITEMS]}}`, `{"name":"greedy"}`},
		"volumes":                      {`{"metadata":{},"spec":{"containers":[{"name":"app"}],"volumes":[ITEMS]}}`, `{"name":"kube-api-access-%[1]d"}`},
		"tolerations":                  {`{"metadata":{},"spec":{"containers":[{"name":"app"}],"tolerations":[ITEMS]}}`, `{"key":"k%[1]d"}`},
		"annotations":                  {`{"metadata":{"annotations":{ITEMS}},"spec":{"containers":[{"name":"app"}]}}`, `"t%[1]d.pillion.dev/p":"%[1]d"`},
		"own annotations":              {`{"metadata":{"annotations":{ITEMS}},"spec":{"containers":[{"name":"app"}]}}`, `"greedy.pillion.dev/p%[1]d":"%[1]d"`},
		"requested":                    {`{"metadata":{"annotations":{"pillion.dev/templates":"greedy,other` + `ITEMS"}},"spec":{"containers":[{"name":"app"}]}}`, `,t%[1]d`},
		"labels":                       {`{"metadata":{"labels":{ITEMS}},"spec":{"containers":[{"name":"app"}]}}`, `"l%[1]d":"%[1]d"`},
		"nesting":                      {`{"metadata":{},"spec":{"containers":[{"name":"app","x":NESTED}]}}`, ""},
		"token mounts × volumes":       {`{"metadata":{` + mine + `},"spec":{"containers":[{"name":"app"}],"initContainers":[{"name":"greedy","volumeMounts":[ITEMS]}],"volumes":[OTHERS,{"name":"kube-api-access-x","projected":{"sources":[{"serviceAccountToken":{}}]}}]}}`, strings.Replace(token, "%[1]d", "x", 1), `{"name":"v%[1]d"}`},
		"token mounts × token volumes": {`{"metadata":{` + mine + `},"spec":{"containers":[{"name":"app"}],"initContainers":[{"name":"greedy","volumeMounts":[ITEMS]}],"volumes":[OTHERS]}}`, token, `{"name":"kube-api-access-%[1]d","projected":{"sources":[{"serviceAccountToken":{}}]}}`},
		"containers × ports":           {`{"metadata":{},"spec":{"hostNetwork":true,"containers":[{"name":"app"},CONTAINERS],"initContainers":[{"name":"x","restartPolicy":"Always","ports":[OTHERS]}]}}`, "", `{"containerPort":1%[1]d}`},
		"ports of one name":            {`{"metadata":{` + mine + `},"spec":{"containers":[{"name":"app"}],"initContainers":[{"name":"greedy","restartPolicy":"Always","ports":[ITEMS]}]}}`, `{"containerPort":1%[1]d,"name":"greedy"}`},
		"devices at one place":         {`{"metadata":{},"spec":{"containers":[{"name":"app","volumeDevices":[ITEMS]}]}}`, `{"name":"v","devicePath":"/var/greedy"}`},
		"containers × claims":          {`{"metadata":{},"spec":{"containers":[{"name":"app"},CONTAINERS]}}`, "", ""},
		"containers × volumes":         {`{"metadata":{},"spec":{"containers":[{"name":"app"},CONTAINERS],"volumes":[OTHERS]}}`, "", `{"name":"v%[1]d"}`},
		"containers × annotations":     {`{"metadata":{"annotations":{OTHERS}},"spec":{"containers":[{"name":"app"},CONTAINERS]}}`, "", `"t%[1]d.pillion.dev/p":"%[1]d"`},
		"variables × mounts":           {`{"metadata":{` + mine + `},"spec":{"containers":[{"name":"app","env":[ITEMS],"volumeMounts":[OTHERS]}]}}`, `{"name":"GREEDY"}`, `{"name":"v","mountPath":"/var/greedy"}`},
		"unknown fields":               {`{"metadata":{},"spec":{"containers":[{"name":"app",ITEMS}]}}`, `"f%[1]d":[{"x":{}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			work := func(n int) (mutate, judge time.Duration) {
				var claims []string
				if strings.Contains(name, "claims") {
					claims = strings.Split(list(n, "claim%[1]d"), ",")
				}
				nested := strings.Repeat("[", n/2) + strings.Repeat("]", n/2)
				object := []byte(strings.NewReplacer("ITEMS", list(n, pod[1]), "OTHERS", list(n, pod[2]), "CONTAINERS", list(n/25, `{"name":"c%[1]d"}`), "NESTED", nested).Replace(pod[0]))
				req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: object, Claims: claims}
				return cpuOf(t, func() error { _, err := injector.Inject(req); return err }),
					cpuOf(t, func() error { _, err := inject.NewJudge(injector, nil, true).Judge(req); return err })
			}
			const n, times, most = 1500, 8, 20
			mutate, judge := work(n)
			mutateMany, judgeMany := work(times * n)
			for tries := 4; ; tries-- { // on a busy machine, the larger pod has more cache misses
				t.Logf("injected: %v, %v; judged: %v, %v", mutate, mutateMany, judge, judgeMany)
				if mutateMany <= most*mutate && judgeMany <= most*judge {
					break
				}
				if tries == 0 {
					t.Fatalf("%d times as many take %.1f times as long to inject and %.1f times as long to judge",
						times, float64(mutateMany)/float64(mutate), float64(judgeMany)/float64(judge))
				}
				nextMutate, nextJudge := work(n)
				mutate, judge = min(mutate, nextMutate), min(judge, nextJudge)
				nextMutate, nextJudge = work(times * n)
				mutateMany, judgeMany = min(mutateMany, nextMutate), min(judgeMany, nextJudge)
			}
		})
	}
}

func item(format string, i int) string {
	if !strings.Contains(format, "%") {
		return format
	}
	return fmt.Sprintf(format, i)
}

// cpuOf returns the least processor time of a few runs, on one thread and without garbage
// collection. The kernel measures the calling thread exactly, and others only up to the last tick.
// A run that changed threads would seem too short.
func cpuOf(t *testing.T, run func() error) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := time.Hour
	for range 4 {
		before := cpu.Used(t)
		if err := run(); err != nil {
			t.Fatal(err)
		}
		least = min(least, cpu.Used(t)-before)
	}
	return max(least, time.Millisecond) // less cannot be measured well
}
