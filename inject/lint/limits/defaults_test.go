// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
)

// TestTryDefaults checks that a template with limits has the same effect as one that also sets the
// requests that the API server derives from them. Each change of the QoS class has a reason that
// names what the container lacks or has.
func TestTryDefaults(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	for cpu := range 5 {
		for memory := range 5 {
			given, whole := lists(cpu, memory, false), lists(cpu, memory, true)
			a, b := tryWith(t, e, given), tryWith(t, e, whole)
			if !reflect.DeepEqual(a.Requests, b.Requests) || !reflect.DeepEqual(a.QoS, b.QoS) {
				t.Errorf("%s: %v %v; but %s: %v %v", given, a.Requests, a.QoS, whole, b.Requests, b.QoS)
			}
			if want := strings.Contains(whole, "requests: {c") || strings.Contains(whole, "requests: {m"); want != (len(a.Requests) > 0) {
				t.Errorf("%s requests %v", given, a.Requests)
			}
			for class := range a.QoS {
				if why := a.QoSWhy[class]; !strings.HasPrefix(why, "the container x ") {
					t.Errorf("%s: a %s pod changes because %q", given, class, why)
				}
			}
		}
	}
	const why = "the container x has no cpu limit"
	if got := tryWith(t, e, "limits: {memory: 64Mi}").QoSWhy["Guaranteed"]; got != why {
		t.Errorf("%q, not %q", got, why)
	}
}

// lists are a container's requests and limits: none, a limit, a request, both, or two that differ. Whole adds the
// requests that the API server adds.
func lists(cpu, memory int, whole bool) string {
	var requests, limits []string
	for _, r := range []struct {
		name, less, more string
		kind             int
	}{{"cpu", "10m", "20m", cpu}, {"memory", "16Mi", "32Mi", memory}} {
		request, limit := []string{"", "", r.more, r.more, r.less}[r.kind], []string{"", r.more, "", r.more, r.more}[r.kind]
		if request == "" && whole {
			request = limit
		}
		if request != "" {
			requests = append(requests, r.name+": "+request)
		}
		if limit != "" {
			limits = append(limits, r.name+": "+limit)
		}
	}
	return fmt.Sprintf("requests: {%s}, limits: {%s}", strings.Join(requests, ", "), strings.Join(limits, ", "))
}

func tryWith(t *testing.T, e *limits.Evaluator, resources string) limits.Trial {
	t.Helper()
	found, problems := templates.Parse("x", []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {pod: {spec: {containers: [{name: x, image: x, resources: {"+resources+"}}]}}}}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return e.Try(templates.NewSet(found), nil)[0]
}
