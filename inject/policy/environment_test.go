// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/library"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// world is what expressions can read of an admission request.
type world struct {
	*evaluator
	all map[string]any
}

// evaluator compiles each expression once.
type evaluator struct {
	env      *celgo.Env
	programs map[string]celgo.Program
}

// newWorld returns the request that creates a pod in a namespace, as the API server's expressions
// see it.
func newWorld(t testing.TB, e *evaluator, pod string, ns request.Namespace) world {
	t.Helper()
	var object any
	if err := json.Unmarshal([]byte(pod), &object); err != nil {
		t.Fatal(err)
	}
	metadata := map[string]any{"name": ns.Name}
	if ns.Labels != nil {
		metadata["labels"] = ns.Labels
	}
	if ns.Annotations != nil {
		metadata["annotations"] = ns.Annotations
	}
	return world{e, map[string]any{
		"object":          integers(object),
		"namespaceObject": map[string]any{"metadata": metadata},
		"request": map[string]any{
			"operation": "CREATE", "namespace": ns.Name, "dryRun": false, "userInfo": map[string]any{"username": "jane"},
		},
		"variables": map[string]any{},
	}}
}

// integers converts whole numbers in JSON to int.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

// environment returns an environment like the API server's, as far as the tests use it. Quantities
// are doubles.
func environment(t testing.TB) *evaluator {
	t.Helper()
	unary := func(name string, in, out *celgo.Type, f func(ref.Val) ref.Val) celgo.EnvOption {
		return celgo.Function(name, celgo.Overload(name, []*celgo.Type{in}, out, celgo.UnaryBinding(f)))
	}
	base, err := celgo.NewEnv(append(library.ListFunctions(),
		celgo.OptionalTypes(), celgo.HomogeneousAggregateLiterals(), celgo.CrossTypeNumericComparisons(true),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.TwoVarComprehensions(), ext.Lists(ext.ListsVersion(3)),
		celgo.Variable("object", celgo.DynType), celgo.Variable("namespaceObject", celgo.DynType), celgo.Variable("request", celgo.DynType),
		celgo.Variable("variables", celgo.MapType(celgo.StringType, celgo.DynType)),
		unary("isQuantity", celgo.StringType, celgo.BoolType, func(v ref.Val) ref.Val {
			_, err := resource.ParseQuantity(v.Value().(string))
			return types.Bool(err == nil)
		}),
		unary("quantity", celgo.StringType, celgo.DoubleType, func(v ref.Val) ref.Val {
			q, err := resource.ParseQuantity(v.Value().(string))
			if err != nil {
				return types.WrapErr(err)
			}
			return types.Double(q.AsApproximateFloat64())
		}),
		celgo.Function("compareTo", celgo.MemberOverload("compareTo", []*celgo.Type{celgo.DoubleType, celgo.DoubleType}, celgo.IntType,
			celgo.BinaryBinding(func(a, b ref.Val) ref.Val { return a.(types.Double).Compare(b) }))),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	env, err := base.Extend(celgo.CustomTypeProvider(objectTypes{base.CELTypeProvider()}))
	if err != nil {
		t.Fatal(err)
	}
	return &evaluator{env, map[string]celgo.Program{}}
}

// eval evaluates an expression. An expression that does not compile fails the test.
func (w world) eval(t testing.TB, expression string) (ref.Val, error) {
	t.Helper()
	out, _, err := w.program(t, expression).Eval(w.all)
	return out, err
}

func (e *evaluator) program(t testing.TB, expression string) celgo.Program {
	t.Helper()
	if e.programs[expression] == nil {
		checked, issues := e.env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("the API server would not take %s\n%v", expression, issues.Err())
		}
		program, err := e.env.Program(checked)
		if err != nil {
			t.Fatal(err)
		}
		e.programs[expression] = program
	}
	return e.programs[expression]
}

// declare evaluates variables. It omits a variable that fails, so that expressions that read it
// fail too.
func (w world) declare(t testing.TB, variables []admissionregistrationv1.Variable) {
	t.Helper()
	for _, v := range variables {
		if out, err := w.eval(t, v.Expression); err == nil {
			w.all["variables"].(map[string]any)[v.Name] = out
		}
	}
}

func parse(t testing.TB, text string) *templates.Template {
	t.Helper()
	found, problems := templates.Parse("x.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	return found[0]
}

func input(t testing.TB, pod string, ns request.Namespace) *cel.Input {
	t.Helper()
	n, err := jsontree.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	return &cel.Input{Pod: n, Namespace: ns, Request: request.Info{Operation: "CREATE", Username: "jane"}}
}
