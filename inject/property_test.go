// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	mattbaird "github.com/mattbaird/jsonpatch"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates"
)

// TestInventedFields adds fields that no API has to every object of every review's pod. All of them
// must stay in place.
func TestInventedFields(t *testing.T) {
	t.Parallel()
	injector := inject.New(mustLoad(t, os.DirFS("testdata/templates"), "."))
	corpus(t, func(t *testing.T, _ string, req inject.Request) {
		pod := decodeJSON(t, req.Object)
		n := 0
		invent(pod, &n)
		var err error
		if req.Object, err = json.Marshal(pod); err != nil {
			t.Fatal(err)
		}
		if n < 3 {
			t.Fatalf("only %d fields invented", n)
		}
		checkInvariants(t, injector, req)
	})
}

func invent(v any, n *int) {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			invent(child, n)
		}
		*n++
		v["invented"] = map[string]any{"a": []any{json.Number("9007199254740993"), nil, "<>&"}, "n": *n}
	case []any:
		for _, child := range v {
			invent(child, n)
		}
	}
}

// TestOracle compares the patch with a diff of the two documents. If the diff is sound (its result
// is the same pod), it never needs fewer operations.
func TestOracle(t *testing.T) {
	t.Parallel()
	injector := inject.New(mustLoad(t, os.DirFS("testdata/templates"), "."))
	compared := 0
	check := func(t *testing.T, req inject.Request) {
		r, after := checkInvariants(t, injector, req)
		ops, ok := diff(t, req.Object, after)
		if !ok {
			return
		}
		compared++
		if len(r.Ops()) > ops {
			t.Errorf("%d operations, the diff needs %d: %s", len(r.Ops()), ops, r.Patch())
		}
	}
	files, _ := filepath.Glob("testdata/cases/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, req := readCase(t, archive)
		check(t, req)
	}
	if compared < 20 {
		t.Errorf("the diff was sound for %d cases only", compared)
	}
	corpus(t, func(t *testing.T, _ string, req inject.Request) { check(t, req) })
	t.Logf("the diff was sound for %d pods", compared)
}

// diff counts the operations of the diff library. It returns ok false if the library panics or if
// its patch does not result in the document.
func diff(t *testing.T, before, after []byte) (count int, ok bool) {
	t.Helper()
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	ops, err := mattbaird.CreatePatch(before, after)
	if err != nil {
		return 0, false
	}
	patch, err := json.Marshal(ops)
	if err != nil || !json.Valid(patch) || len(ops) == 0 {
		return 0, len(ops) == 0 && err == nil
	}
	return len(ops), reflect.DeepEqual(decodeJSON(t, applyPatch(t, before, patch)), decodeJSON(t, after))
}

// TestSameBytesInEveryProcess runs this test's binary again, because each process seeds map
// iteration anew.
func TestSameBytesInEveryProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv("TEST_PRINT_DIGEST") != "" {
		fmt.Printf("digest %x\n", digest(t))
		return
	}
	want := fmt.Sprintf("digest %x", digest(t))
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSameBytesInEveryProcess$")
		cmd.Env = append(os.Environ(), "TEST_PRINT_DIGEST=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got, _, _ := bytes.Cut(out, []byte("\n")); string(got) != want {
			t.Errorf("another process gave %s, this one %s", got, want)
		}
	}
}

// TestExpensiveExpressions checks that a template is left out completely, and no other with it, if
// its expressions cost too much for a pod, at any place in the pod.
func TestExpensiveExpressions(t *testing.T) {
	t.Parallel()
	const header = "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: NAME}\nspec:\n  default: true\n"
	costly, problems := templates.Parse("costly", []byte(strings.Replace(header, "NAME", "costly", 1)+
		"  forEachContainer: [{where: \"!pod.spec.containers.exists(c, c.name == 'no')\", add: {env: [{name: A, value: b}]}}]\n"))
	cheap, more := templates.Parse("cheap", []byte(strings.Replace(header, "NAME", "cheap", 1)+
		"  forEachContainer: [{where: container.name != 'no', add: {env: [{name: B, value: b}]}}]\n"))
	if len(problems)+len(more) > 0 {
		t.Fatal(problems, more)
	}
	injector := inject.New(templates.NewSet(append(costly, cheap...)))
	codes := map[inject.Code]bool{}
	for _, n := range []int{1, 200, 240, 300} {
		containers := make([]any, n)
		for i := range containers {
			containers[i] = map[string]any{"name": fmt.Sprint("c", i)}
		}
		pod, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers}})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := checkInvariants(t, injector, inject.Request{Operation: "CREATE", Object: pod})
		codes[r.Decisions[0].Code] = true
		if r.Decisions[1].Code != inject.CodeInjected {
			t.Errorf("%d containers: %+v", n, r.Decisions[1])
		}
	}
	if !codes[inject.CodeInjected] || !codes[inject.CodeRenderFailed] {
		t.Errorf("the limit was not met from both sides: %v", codes)
	}
}

// TestHostileExpressions checks that no strings in a pod make an expression take seconds of CPU or
// much memory.
func TestHostileExpressions(t *testing.T) {
	const mostTime, mostMemory = 4 * time.Second, 32 << 20
	long := strings.Repeat("x", 16_000)
	containers := make([]any, 490)
	for i := range containers {
		containers[i] = map[string]any{"name": fmt.Sprint("c", i)}
	}
	pod, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"a": long, "b": long[1:] + "y", "half": long[:8_000] + "y"}},
		"spec":     map[string]any{"containers": containers},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, expression := range []string{
		"$A.replace('x', $B)", "$A.split('').join($B)", "'%s'.format([pod.spec.containers.map(c, $A)])",
		"'%s'.format([{'a': [$A, $A, $A], 'b': [$A, $A, $A]}])",
		"string(pod.spec.containers.map(c, pod.spec.containers.map(d, $A)).size())",
		"string(sets.intersects($A.split(''), $B.split('')))", "string(sets.contains($A.split(''), $B.split('')))",
		"string($A.split('') == $B.split(''))", "string($A.indexOf(pod.metadata.annotations['half']))",
		"string($A.matches('(x{0,30})*y'))", "strings.quote($A).reverse().lowerAscii().substring(60000)",
		"string(pod.spec.containers.all(c, $A.contains($B)))", "string(pod.spec.containers.all(c, $A.split('').size() > 0))",
		"string(pod.spec.containers.all(c, pod.spec.containers.all(d, d.name != c.image)))",
		"string(pod.spec.containers.all(c, (pod.spec.containers + pod.spec.containers).size() > 0))",
	} {
		source := strings.NewReplacer("$A", "pod.metadata.annotations['a']", "$B", "pod.metadata.annotations['b']").Replace(expression)
		found, problems := templates.Parse("it", fmt.Appendf(nil, "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: it}\nspec:\n"+
			"  default: true\n  pod: {spec: {containers: [{name: it, image: it, args: [%q]}]}}\n", "${"+source+"}"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		injector := inject.New(templates.NewSet(found))
		began, before := cpu.Used(t), allocated()
		r, err := injector.Inject(inject.Request{Operation: "CREATE", Object: pod})
		if err != nil {
			t.Fatal(err)
		}
		took, memory := cpu.Used(t)-began, allocated()-before
		if took > mostTime || memory > mostMemory {
			t.Errorf("%s: %v and %d MiB: %s", expression, took, memory>>20, r.Decisions[0].Sentence())
		}
	}
}

// allocated returns the number of bytes that the process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// digest returns a hash of the engine's results for every case and every review's pod.
func digest(t *testing.T) []byte {
	sum := sha256.New()
	add := func(injector *inject.Injector, req inject.Request) {
		r, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(r.Patch())
		sum.Write([]byte(describe(r)))
	}
	files, _ := filepath.Glob("testdata/cases/*.txtar")
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		add(readCase(t, archive))
	}
	injector := inject.New(mustLoad(t, os.DirFS("testdata/templates"), "."))
	_, requests := readReviews(t)
	for _, req := range requests {
		add(injector, req)
	}
	return sum.Sum(nil)
}
