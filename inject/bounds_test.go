// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// withSpecs returns an injector with templates t0, t1 and so on, which all pods get.
func withSpecs(t testing.TB, specs ...string) *inject.Injector {
	t.Helper()
	var all []*templates.Template
	for i, spec := range specs {
		found, problems := templates.Parse("it", fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {default: true, %s}}", i, spec))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		all = append(all, found...)
	}
	return inject.New(templates.NewSet(all))
}

// list returns n copies of the item. In them, %d is the number of the copy.
func list(n int, format string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(format, i)
	}
	return strings.Join(items, ",")
}

// TestBounds checks that a pod with very many items of one kind does not take quadratic time or
// memory.
func TestBounds(t *testing.T) {
	const most = 160 << 20 // bytes; the race detector counts more
	const plain = `{"metadata":{"annotations":{"a":"b"}},"spec":{"containers":[{"name":"app"}]}}`
	annotations := map[string]string{}
	for i := range 3000 {
		annotations[fmt.Sprint("example.com/", i)] = "x"
	}
	many := make([]string, 50)
	for i := range many {
		many[i] = "pod: {metadata: {annotations: {a: b}}}"
	}
	first, volumes := slices.Clone(many), slices.Clone(many)
	for i := range many {
		first[i] = fmt.Sprintf("placement: {initContainers: First}, pod: {spec: {initContainers: [{name: a%d, image: a}]}}", i)
		volumes[i] = fmt.Sprintf("pod: {spec: {volumes: [{name: a%d, emptyDir: {}}]}}", i)
	}
	for name, row := range map[string]struct {
		injector *inject.Injector
		req      inject.Request
	}{
		"unknown names": {withSpecs(t, many...), inject.Request{Object: []byte(
			`{"metadata":{"annotations":{"pillion.dev/templates":"` + list(50_000, "x%[1]d") + `"}},"spec":{"containers":[{"name":"app"}]}}`)}},
		"annotations of the namespace": {
			withSpecs(t, `match: {condition: "!ns.annotations.exists(k, ns.annotations[k] == 'y')"}, pod: {metadata: {annotations: {a: b}}}`),
			inject.Request{Object: []byte(plain), Namespace: request.Namespace{Name: "shop", Annotations: annotations}},
		},
		"containers first": {withSpecs(t, first...), inject.Request{Object: []byte(
			`{"spec":{"containers":[{"name":"app"}],"initContainers":[` + list(300_000, `{}`) + `]}}`)}},
		"volumes": {withSpecs(t, volumes...), inject.Request{Object: []byte(
			`{"spec":{"containers":[{"name":"app"}],"volumes":[` + list(200_000, `{}`) + `]}}`)}},
		"findings": {
			withSpecs(t, "forEachContainer: [{add: {env: ["+list(20, "{name: VARIABLE_%[1]d, value: x}")+"]}}]"),
			inject.Request{Object: []byte(`{"spec":{"containers":[` + list(500, `{"name":"c%[1]d","env":[{"name":"MINE"}]}`) + `]}}`)},
		},
	} {
		row.req.Operation, row.req.OptedIn = "CREATE", true
		before := allocated()
		if _, err := row.injector.Inject(row.req); err != nil {
			t.Fatal(err)
		}
		verdict, err := inject.NewJudge(row.injector, nil, true).Judge(row.req)
		if err != nil {
			t.Fatal(err)
		}
		verdict.AppendAudit(nil)
		if memory := allocated() - before; memory > most {
			t.Errorf("%s: %d MiB", name, memory>>20)
		}
	}
}

// TestTooLongToRead checks that an expression fails if it reads something too long, anywhere in the
// pod.
func TestTooLongToRead(t *testing.T) {
	for _, condition := range []string{"request.username.size() > 2", "ns.annotations.size() > 2", "ns.labels.exists(k, k == 'x')", "serviceAccount.labels.size() > 2", "serviceAccount.annotations.exists(k, k == 'x')"} {
		large := map[string]string{}
		for i := range 2000 {
			large[fmt.Sprint("k", i)] = ""
		}
		r, err := withSpecs(t, fmt.Sprintf("match: {condition: %q}, pod: {metadata: {annotations: {a: b}}}", condition)).Inject(inject.Request{
			Operation: "CREATE", OptedIn: true, Username: strings.Repeat("x", 30_000), Object: []byte(`{"spec":{"containers":[{"name":"app"}]}}`),
			Namespace: request.Namespace{
				Name: "shop", Known: true, Labels: large, Annotations: large,
				ServiceAccounts: request.SameServiceAccount{Known: true, Labels: large, Annotations: large},
			},
		})
		if err != nil || r.Decisions[0].Code != inject.CodeRenderFailed {
			t.Errorf("%s: %v %s", condition, err, r.Decisions[0].Code)
		}
	}
}

// TestManyOfOneName checks that finding a container's owner does not search all annotations for
// each container.
func TestManyOfOneName(t *testing.T) {
	specs := []string{"pod: {spec: {containers: [{name: side, image: s}]}}"}
	for i := range 19 {
		specs = append(specs, fmt.Sprintf("forEachContainer: [{add: {env: [{name: A%d, value: x}]}}]", i))
	}
	injector := withSpecs(t, specs...)
	took := func(name string) float64 {
		pod := `{"metadata":{"annotations":{` + list(50_000, `"t0.pillion.dev/inj%[1]d":""`) + `}},"spec":{"containers":[` + list(490, `{"name":"`+name+`"}`) + `]}}`
		return cpuOf(t, func() error {
			_, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(pod)})
			return err
		}).Seconds()
	}
	if other, side := took("other"), took("side"); side > 5*other {
		t.Errorf("pods take %v s, and %v s where the name is a template's", other, side)
	}
}

// TestMaxPatch checks that a template is left out, with a reason, if the pod would become larger
// than the API server accepts.
func TestMaxPatch(t *testing.T) {
	t.Parallel()
	const limit = 3 << 20
	for _, row := range []struct {
		each int
		want bool
	}{{limit/2 - 1000, true}, {limit/2 + 1000, false}} {
		var specs []string
		for i := range 2 {
			specs = append(specs, fmt.Sprintf("pod: {spec: {containers: [{name: big-%d, image: i, args: [%s]}]}}", i, strings.Repeat("x", row.each)))
		}
		r, _ := checkInvariants(t, withSpecs(t, specs...), inject.Request{Operation: "CREATE", Object: []byte(`{"spec":{"containers":[{"name":"app","image":"i"}]}}`)})
		if r.Adds() != row.want || len(r.Patch()) > limit {
			t.Errorf("two of %d bytes: a patch of %d", row.each, len(r.Patch()))
		}
		for _, d := range r.Decisions {
			if (d.Code == inject.CodeInjected) != row.want || !row.want && !strings.Contains(d.Message, "larger than the API server accepts") {
				t.Errorf("two of %d bytes: %s: %s", row.each, d.Code, d.Message)
			}
		}
	}
}
