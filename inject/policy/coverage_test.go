// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// inNoPolicy has the codes that no pod has whose templates a policy can express, with the reason.
var inNoPolicy = map[inject.Code]string{
	inject.CodeUnknownServiceAccount: "a policy cannot read ServiceAccounts",
	inject.CodeNotInShare:            noReplacement,
	inject.CodeReplaced:              noReplacement,
	inject.CodeHasReplaced:           noReplacement,
	inject.CodeFellBack:              noReplacement,
}

// notInPolicies has the fields of templates that no policy can express, with the reason. It counts for the fields below them, too.
var notInPolicies = map[string]string{
	"spec.replaces":          noReplacement,
	"spec.share":             noReplacement,
	"spec.params.items":      noParts,
	"spec.params.maxItems":   noParts,
	"spec.params.keyPattern": noParts,
	"spec.params.keys":       noParts,
	"spec.params.separator":  noParts,
	"spec.params.prefix":     noParts,
	"spec.rollout":           "it is about running pods",

	"spec.placement.initContainers.after":  noNeighbour,
	"spec.placement.initContainers.before": noNeighbour,
	"spec.placement.containers.after":      noNeighbour,
	"spec.placement.containers.before":     noNeighbour,
}

const (
	noReplacement = "a policy cannot select a share of the workloads"
	noParts       = "a policy cannot read parameters of the types list, map and json"
	noNeighbour   = "a policy can place containers First or Last only"
)

// TestEngineCoverage checks that TestEngine compares what policies do for each code of a decision and for each field of a template. So
// what a policy does about a new rule or a new field cannot be forgotten.
func TestEngineCoverage(t *testing.T) {
	t.Parallel()
	env := environment(t).env
	codes, fields := map[inject.Code]bool{}, map[string]bool{}
	for _, c := range engineCases(t) {
		if c.pod == nil || newMutations(t, env, c.set) == nil {
			continue
		}
		result, err := inject.New(c.set).Inject(inject.Request{Operation: "CREATE", Username: "jane", Namespace: c.ns, Object: c.pod})
		if err != nil {
			t.Fatal(err)
		}
		for i := range result.Decisions {
			codes[result.Decisions[i].Code] = true
		}
		archive, err := txtar.ParseFile(filepath.Join("../testdata/cases", c.name+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			var template struct {
				Spec any `json:"spec"`
			}
			if strings.HasSuffix(f.Name, ".template.yaml") {
				if err := yaml.Unmarshal(f.Data, &template); err != nil {
					t.Fatal(err)
				}
				noteFields(reflect.TypeFor[v1alpha1.Spec](), template.Spec, "spec", fields)
			}
		}
	}
	for _, code := range inject.DecisionCodes() {
		checkCovered(t, "code "+string(code), codes[code], inNoPolicy[code])
	}
	all := fieldsOf(reflect.TypeFor[v1alpha1.Spec](), "spec")
	for _, field := range all {
		why := notInPolicies[field]
		for above, reason := range notInPolicies {
			if strings.HasPrefix(field, above+".") {
				why = reason
			}
		}
		checkCovered(t, "field "+field, fields[field], why)
	}
	for field := range notInPolicies {
		if !slices.Contains(all, field) {
			t.Errorf("%s: there is no such field; remove it from notInPolicies", field)
		}
	}
}

// checkCovered checks that policies are compared with the engine for something, or that there is a reason why no policy can express it.
func checkCovered(t *testing.T, what string, compared bool, why string) {
	t.Helper()
	switch {
	case !compared && why == "":
		t.Errorf("no case in inject/testdata/cases whose templates a policy can express has the %s: express it in inject/policy and add a case, or write in this file why no policy can", what)
	case compared && why != "":
		t.Errorf("a case whose templates a policy can express has the %s, so this is not true: %s; remove it from this file", what, why)
	}
}

// fieldsOf returns the paths of the fields of a type, and of those below them that are not Kubernetes' own.
func fieldsOf(of reflect.Type, at string) (all []string) {
	for _, f := range jsontree.StructFields(of) {
		path := at + "." + f.JSON
		all = append(all, path)
		if below := structBelow(f.Type); below != nil {
			all = append(all, fieldsOf(below, path)...)
		}
	}
	return all
}

// noteFields notes the paths of the fields of a type that a value has.
func noteFields(of reflect.Type, value any, at string, fields map[string]bool) {
	if list, ok := value.([]any); ok {
		for _, item := range list {
			noteFields(of, item, at, fields)
		}
		return
	}
	object, _ := value.(map[string]any)
	for _, f := range jsontree.StructFields(of) {
		member, there := object[f.JSON]
		if !there {
			continue
		}
		path := at + "." + f.JSON
		fields[path] = true
		if below := structBelow(f.Type); below != nil {
			noteFields(below, member, path, fields)
		}
	}
}

// structBelow returns the struct that a field has, as its value or in a list, or nil.
func structBelow(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[metav1.LabelSelector]() || !strings.HasSuffix(t.PkgPath(), "/v1alpha1") {
		return nil
	}
	return t
}
