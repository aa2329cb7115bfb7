// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestFields sets each field of a container to some values. If a Pod Security check rejects one, the field must be in riskyValues, and
// each of its values there must be rejected.
func TestFields(t *testing.T) {
	t.Parallel()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rejects := func(at []string, value any) bool {
		container := map[string]any{}
		if err := json.Unmarshal([]byte(`{"name":"c","securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}}`), &container); err != nil {
			t.Fatal(err)
		}
		of := container
		for _, name := range at[:len(at)-1] {
			if list, ok := strings.CutSuffix(name, "[]"); ok {
				item := map[string]any{}
				of[list], of = []any{item}, item
				continue
			}
			of = memberOf(of, name)
		}
		last := at[len(at)-1]
		if list, ok := strings.CutSuffix(last, "[]"); ok {
			last, value = list, []any{value}
		}
		of[last] = value
		text, err := json.Marshal(container)
		if err != nil {
			t.Fatal(err)
		}
		var c corev1.Container
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(at, err)
		}
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}, &metav1.ObjectMeta{}, &corev1.PodSpec{Containers: []corev1.Container{c}}))
		return !result.Allowed
	}
	checked := 0
	var visit func(typ reflect.Type, at []string, field string)
	visit = func(typ reflect.Type, at []string, field string) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8 {
			at[len(at)-1] += "[]"
			visit(typ.Elem(), at, field)
			return
		}
		isScalar := slices.Contains([]reflect.Type{reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]()}, typ)
		if typ.Kind() == reflect.Struct && !isScalar {
			for _, f := range jsontree.StructFields(typ) {
				visit(f.Type, append(slices.Clone(at), f.JSON), f.Parent.Name()+"."+f.JSON)
			}
			return
		}
		var values []any
		switch {
		case isScalar:
			values = []any{"1"}
		case typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice:
			return // names of resources, and bytes
		default:
			for _, text := range map[reflect.Kind][]string{reflect.Bool: {"true", "false"}, reflect.String: {"sample", "Unconfined"}, reflect.Int32: {"0", "80"}, reflect.Int64: {"0", "80"}}[typ.Kind()] {
				values = append(values, scalarOf(typ, text))
			}
		}
		risky, known := riskyValues(field)
		if len(values) == 0 || known != isChecked(typ, field) {
			t.Errorf("%s %s: %v", field, typ, known)
		}
		if field == "AppArmorProfile.localhostProfile" {
			return // without a type, which is required beside it, the object itself is rejected
		}
		for _, value := range values {
			if rejects(at, value) && !known {
				t.Errorf("%s: a check rejects %v, so riskyValues must have the field", field, value)
			}
		}
		for _, text := range risky {
			if checked++; !rejects(at, scalarOf(typ, text)) && text != "NET_BIND_SERVICE" {
				t.Errorf("%s (%v): no check rejects %s", field, at, text)
			}
		}
	}
	visit(reflect.TypeFor[corev1.Container](), nil, "")
	if checked < 50 {
		t.Errorf("only %d values were checked", checked)
	}
}

// TestStringsOf checks which patterns have few strings.
func TestStringsOf(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"debug|info": "debug info", "v[12]": "v1 v2", "(a|b)(c|d)?": "a ac ad b bc bd", "": "", "[a-z]+": "?", "a*": "?", "(?i)a": "?", "[a-z]": "?", "x{3}": "?",
	} {
		all, finite := stringsOf(pattern)
		if slices.Sort(all); !finite && want != "?" || finite && strings.Join(all, " ") != want {
			t.Errorf("%q: %q %v, want %q", pattern, all, finite, want)
		}
	}
}
