// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/inject/testing/size"
)

// podsOfDeployment is the number of pods of each Deployment in manyPods.
const podsOfDeployment = 100

// manyPods is an API with so many pods of Deployments in the namespace shop, which need another image and more memory, unless
// some are altered. They are as large as usual ones: 30 variables, volumes, conditions, and managed fields of three managers.
func manyPods(t testing.TB, pods int, alter ...func(i int, pod map[string]any)) http.Handler {
	t.Helper()
	api := rolloutAPI(t, []string{"shop"}, nil)
	const of = "/api/v1/namespaces/shop/pods"
	pod := api[of+"/web"].(map[string]any)
	var sets, deployments []any
	controller := func(kind, name string) []any {
		return []any{map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}}
	}
	app := func() map[string]any {
		var env []any
		for i := range 30 {
			env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", i), "value": "a value of an app"})
		}
		return map[string]any{"name": "web", "image": "web:1", "env": env, "resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"}}}
	}
	for i := range (pods + podsOfDeployment - 1) / podsOfDeployment {
		name := fmt.Sprintf("web-%d", i)
		labels := map[string]any{"app": name, "pod-template-hash": "abcde"}
		template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{app()}}}
		spec := map[string]any{"replicas": podsOfDeployment, "selector": map[string]any{"matchLabels": map[string]any{"app": name}}, "template": template}
		status := map[string]any{"replicas": podsOfDeployment, "updatedReplicas": podsOfDeployment, "readyReplicas": podsOfDeployment, "availableReplicas": podsOfDeployment}
		sets = append(sets, map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{"name": name + "-abcde", "namespace": "shop", "labels": labels, "ownerReferences": controller("Deployment", name)}, "spec": spec, "status": status})
		deployments = append(deployments, map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": "shop"}, "spec": spec, "status": status})
	}
	api["/apis/apps/v1/namespaces/shop/replicasets"], api["/apis/apps/v1/namespaces/shop/deployments"] = listOf(sets...), listOf(deployments...)
	podText := func(i int) []byte {
		one, metadata, spec := maps.Clone(pod), maps.Clone(pod["metadata"].(map[string]any)), maps.Clone(pod["spec"].(map[string]any))
		owner, token := fmt.Sprintf("web-%d", i/podsOfDeployment), fmt.Sprintf("kube-api-access-%05d", i%100000)
		name := owner + "-abcde-" + randomPart(i)
		metadata["name"], metadata["uid"], metadata["generateName"], metadata["resourceVersion"] = name, "uid-"+name, owner+"-abcde-", strconv.Itoa(i)
		metadata["creationTimestamp"] = time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339)
		metadata["labels"], metadata["ownerReferences"] = map[string]any{"app": owner, "pod-template-hash": "abcde"}, controller("ReplicaSet", owner+"-abcde")
		fields := map[string]any{"f:status": map[string]any{"f:podIPs": map[string]any{fmt.Sprintf(`k:{"ip":"10.0.%d.%d"}`, i/256, i%256): map[string]any{}}}}
		metadata["managedFields"] = append(metadata["managedFields"].([]any)[:1:1], map[string]any{"manager": "kubelet", "operation": "Update", "subresource": "status", "time": metadata["creationTimestamp"], "fieldsType": "FieldsV1", "fieldsV1": fields})
		mount := []any{map[string]any{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}}
		container := app()
		container["volumeMounts"] = mount
		sidecar := maps.Clone(spec["initContainers"].([]any)[0].(map[string]any))
		sidecar["volumeMounts"] = mount
		spec["containers"], spec["initContainers"], spec["nodeName"] = []any{container}, []any{sidecar}, fmt.Sprintf("node-%d", i%50)
		spec["volumes"] = []any{map[string]any{"name": token, "projected": map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{"path": "token", "expirationSeconds": 3607}}}}}}
		one["metadata"], one["spec"] = metadata, spec
		one["status"] = map[string]any{"phase": "Running", "podIP": fmt.Sprintf("10.0.%d.%d", i/256, i%256), "conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": metadata["creationTimestamp"]}}}
		for _, change := range alter {
			change(i, one)
		}
		text, err := json.Marshal(one)
		if err != nil {
			panic(err)
		}
		return text
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(podText(0))
			return
		}
		if r.URL.Path != of {
			api.ServeHTTP(w, r)
			return
		}
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		to := pods
		if limit > 0 {
			to = min(from+limit, pods)
		}
		next := ""
		if to < pods {
			next = strconv.Itoa(to)
		}
		var b strings.Builder
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"PodList","metadata":{"continue":%q},"items":[`, next)
		for i := from; i < to; i++ {
			if i > from {
				b.WriteByte(',')
			}
			b.Write(podText(i))
		}
		b.WriteString("]}")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, b.String())
	})
}

// randomPart returns what an API server may have appended to the name of a pod.
func randomPart(i int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	text := make([]byte, 5)
	for k := range text {
		text[k], i = letters[i%len(letters)], i/len(letters)
	}
	return string(text)
}

// planMany plans so many pods, and returns the CPU time, which includes that of the API, and the greatest heap after a collection.
func planMany(t *testing.T, pods int) (took time.Duration, heap uint64) {
	t.Helper()
	c := clientOf(t, manyPods(t, pods))
	done := make(chan struct{})
	peak := make(chan uint64)
	go func() {
		var most uint64
		var now runtime.MemStats
		for {
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(50 * time.Millisecond):
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
		}
	}()
	begun := cpu.Used(t)
	targets, err := c.Rollout(t.Context(), Query{Namespaces: []string{"shop"}}, Bounds{}, io.Discard)
	took = cpu.Used(t) - begun
	close(done)
	heap = <-peak
	clitest.Must(t, err)
	behind := 0
	for _, w := range targets.Workloads {
		if behind += len(w.Todo()); w.Way != rollout.ChangeInPlace {
			t.Fatalf("%s: %s (%s)", w.Title(), w.Way, w.Why)
		}
	}
	if behind != pods || targets.Pods != pods {
		t.Fatalf("%d of %d pods are behind, want %d", behind, targets.Pods, pods)
	}
	return took, heap
}

// TestRolloutPlanIsLinear checks that a plan costs as much for each pod, whatever the number of pods is, and that 10,000 pods take
// at most 150 MiB.
func TestRolloutPlanIsLinear(t *testing.T) {
	few, many := size.Choose(t, 500, 10_000), size.Choose(t, 5000, 100_000)
	var each [2]time.Duration
	for i, pods := range []int{few, many} {
		took, heap := planMany(t, pods)
		each[i] = took / time.Duration(pods)
		t.Logf("%d pods: %s CPU, %s a pod, %d MiB heap", pods, took, each[i], heap>>20)
		if most := uint64(150<<20) * uint64(max(1, pods/10_000)); heap > most {
			t.Errorf("the plan of %d pods takes %d MiB, want at most %d", pods, heap>>20, most>>20)
		}
	}
	if each[1] > 3*each[0] {
		t.Errorf("a pod takes %s if there are %d, and %s if there are %d", each[1], many, each[0], few)
	}
}

// planFrom is the variable with the address of the API, in the process that TestRolloutMemory starts.
const planFrom = "TEST_PLAN_FROM"

// peakLine is what the kernel reports about the most memory that a process had, in KiB: proc_pid_status(5).
var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB\n`)

// TestRolloutMemory checks how much memory a process takes that plans many pods, and logs its CPU time. The API is in another process.
func TestRolloutMemory(t *testing.T) {
	query := Query{Namespaces: []string{"shop"}}
	if address := os.Getenv(planFrom); address != "" {
		c, err := NewClient(&rest.Config{Host: address, QPS: -1}, "pillion-system")
		clitest.Must(t, err)
		targets, err := c.Rollout(t.Context(), query, Bounds{}, io.Discard)
		clitest.Must(t, err)
		if targets.Pods == 0 || len(targets.Workloads) == 0 {
			t.Errorf("the plan has %d pods and %d workloads", targets.Pods, len(targets.Workloads))
		}
		status, err := os.ReadFile("/proc/self/status")
		if err == nil { // otherwise it is not Linux
			os.Stdout.Write(peakLine.Find(status))
		}
		return
	}
	pods := size.Choose(t, 2000, 10_000)
	server := httptest.NewServer(manyPods(t, pods))
	t.Cleanup(server.Close)
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRolloutMemory$")
	process.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") }), planFrom+"="+server.URL)
	out, err := process.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Not the maximum of getrusage(2): that includes the memory of the process that started it.
	peak := peakLine.FindSubmatch(out)
	if peak == nil {
		t.Skip("SKIPPED: the memory of a process can be measured only on Linux")
	}
	memory, err := strconv.Atoi(string(peak[1]))
	clitest.Must(t, err)
	memory >>= 10
	state := process.ProcessState
	t.Logf("%d pods: CPU %s, memory %d MiB", pods, (state.UserTime() + state.SystemTime()).Round(10*time.Millisecond), memory)
	if most := 100; memory > most {
		t.Errorf("the plan of %d pods takes %d MiB, want at most %d", pods, memory, most)
	}
}

// TestRolloutHolds checks how much memory a rollout takes for each pod while it waits, and that it decodes one pod at a time.
func TestRolloutHolds(t *testing.T) {
	const most = 6 << 10 // bytes of a pod; whole, these have 9 KiB
	pods := size.Choose(t, 500, 5000)
	c := clientOf(t, manyPods(t, pods))
	heap := func() uint64 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	watch := rollout.NewWatch(rollout.ChangeInPlace, rollout.Rules{}, rollout.Claim{})
	before, peak, seen := heap(), uint64(0), []*corev1.Pod{}
	_, err := c.Executor().InspectWorkload(t.Context(), &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web-0"}, nil, func(pod *corev1.Pod) {
		if seen = append(seen, rollout.Trim(pod)); len(seen)%50 == 0 {
			peak = max(peak, heap())
		}
	})
	clitest.Must(t, err)
	n := uint64(len(seen))
	watch.See(seen, time.Now())
	seen = nil
	after := heap()
	runtime.KeepAlive(watch)
	t.Logf("%d pods: %d bytes each, %d while they are read", n, (after-before)/n, (peak-before)/n)
	if n != uint64(pods) || after-before > most*n || peak-before > 2*most*n {
		t.Errorf("%d of %d pods take %d bytes each, and %d while they are read, want at most %d and %d", n, pods, (after-before)/n, (peak-before)/n, most, 2*most)
	}
}

// TestRolloutPlansAlike checks that pods which share a plan get what each would get by itself.
func TestRolloutPlansAlike(t *testing.T) {
	t.Parallel()
	const pods = 3 * podsOfDeployment
	texts := map[string][]byte{}
	alter := func(i int, pod map[string]any) {
		metadata, spec := pod["metadata"].(map[string]any), pod["spec"].(map[string]any)
		switch i % 10 {
		case 1:
			pod["status"].(map[string]any)["conditions"] = []any{}
		case 2:
			metadata["annotations"] = map[string]any{"agent.pillion.dev/injected": "0123456789ab"}
		case 3: // somebody has changed the image
			fields := map[string]any{"f:spec": map[string]any{"f:initContainers": map[string]any{`k:{"name":"agent"}`: map[string]any{"f:image": map[string]any{}}}}}
			metadata["managedFields"] = append(metadata["managedFields"].([]any), map[string]any{"manager": "kubectl", "operation": "Update", "time": "2027-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
		case 4: // it is current
			spec["initContainers"].([]any)[0].(map[string]any)["image"] = "agent:2"
		case 5:
			metadata["deletionTimestamp"] = "2027-01-01T00:00:00Z"
		case 6:
			pod["status"].(map[string]any)["phase"] = "Succeeded"
		}
		text, err := json.Marshal(pod)
		clitest.Must(t, err)
		texts[metadata["name"].(string)] = text
	}
	targets, err := clientOf(t, manyPods(t, pods, alter)).Rollout(t.Context(), Query{Namespaces: []string{"shop"}}, Bounds{}, io.Discard)
	clitest.Must(t, err)
	planned := map[string]*rollout.Pod{}
	for _, w := range targets.Workloads {
		for _, p := range w.Behind {
			planned[p.Name] = p
		}
	}
	ways, kept := map[rollout.Action]int{}, 0
	for name, text := range texts {
		want, err := targets.Plan("shop", text)
		clitest.Must(t, err)
		ways[want.Action]++
		kept += len(want.Kept)
		got := planned[name]
		if got == nil {
			got = &rollout.Pod{Namespace: "shop", Name: name, Action: rollout.None, UID: want.UID, Ready: want.Ready, State: want.State, Labels: want.Labels}
		}
		want.Forget()
		show := func(p *rollout.Pod) string {
			return fmt.Sprint(p.Namespace, p.Name, p.UID, p.Labels, p.Ready, p.State, p.Action, p.Why, p.Changes, p.Kept, p.Own, p.Records, p.Restarts())
		}
		if want.Action == rollout.None {
			want.Records, want.Own, want.Changes = nil, nil, nil
			got.Records = nil
		}
		if show(got) != show(want) {
			t.Errorf("pod %s:\n%s\n%s", name, show(got), show(want))
		}
	}
	if len(texts) != pods || ways[rollout.None] == 0 || ways[rollout.Patch] == 0 || kept == 0 {
		t.Errorf("%d pods: %v, and %d fields stay", len(texts), ways, kept)
	}
}
