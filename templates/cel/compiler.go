// SPDX-License-Identifier: Apache-2.0

// Package cel compiles and evaluates the expressions of templates. It has the environment of their variables and functions, limits
// what they cost, and knows which parts of a pod they read.
//
// A [Compiler] compiles the expressions of one template, each in a [Scope]. An [Expression] is evaluated with an [Input]: a pod, what
// is known beside it, and how much the expressions of the template have cost so far.
package cel

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/library"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Compiler compiles the expressions of one template.
type Compiler struct {
	language  *language
	pod       *Scope // params, pod, ns, serviceAccount, request
	container *Scope // these and container
	provider  *provider
	params    []v1alpha1.Param
	reads     Dependencies

	variables []*Variable // that are compiled so far
}

// NewCompiler returns a compiler for the expressions of a template with these parameters.
func NewCompiler(declared []v1alpha1.Param) (*Compiler, error) {
	language, err := theLanguage()
	if err != nil {
		return nil, err
	}
	provider := newProvider(language.CELTypeProvider(), declared)
	env, err := language.Extend(
		cel.CustomTypeProvider(provider),
		cel.Variable("variables", cel.ObjectType(values.VariablesType)),
		cel.Variable("params", cel.ObjectType(values.ParamsType)),
		cel.Variable("pod", cel.ObjectType(reflect.TypeFor[corev1.Pod]().Name())),
		cel.Variable("ns", cel.ObjectType(values.NamespaceType)), // `namespace` is a reserved word of CEL
		cel.Variable(request.AccountVariable, cel.ObjectType(values.ServiceAccountType)),
		cel.Variable("request", cel.ObjectType(values.RequestType)),
	)
	if err != nil {
		return nil, err
	}
	each, err := env.Extend(cel.Variable("container", cel.ObjectType(reflect.TypeFor[corev1.Container]().Name())))
	if err != nil {
		return nil, err
	}
	return &Compiler{
		language: language, provider: provider, pod: &Scope{env: env}, container: &Scope{env: each}, params: declared,
		reads: Dependencies{parts: reads{}, params: map[string]bool{}},
	}, nil
}

// PodScope returns the scope of expressions that have one value for each pod.
func (c *Compiler) PodScope() *Scope { return c.pod }

// ContainerScope returns the scope of expressions that have one value for each container.
func (c *Compiler) ContainerScope() *Scope { return c.container }

// Variables returns the variables that are declared so far, in their order.
func (c *Compiler) Variables() []*Variable { return c.variables }

// Dependencies returns what the expressions that are compiled so far depend on.
func (c *Compiler) Dependencies() *Dependencies { return &c.reads }

// compileExpression checks and compiles one expression. If whole is true, it may compute an object, so that a map may have values
// of different types. An error is one sentence.
func (c *Compiler) compileExpression(s *Scope, source string, whole bool) (*Expression, error) {
	env := s.env
	checked, issues, err := parseAndCheck(env, source, nil)
	if err == nil && issues.Err() == nil {
		if chained := chainedOptionals(checked.NativeRep()); len(chained) > 0 {
			checked, issues, err = parseAndCheck(env, source, chained)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("CEL: %w (in %q)", err, source)
	}
	if issues.Err() != nil {
		first := issues.Errors()[0]
		text, hint := diagnostics.Explain(env, source, first)
		return nil, fmt.Errorf("CEL: %s (%s)%s", text, diagnostics.FormatLocation(source, first.Location), hint)
	}
	native := checked.NativeRep()
	read, err := c.variablesRead(native)
	if err != nil {
		return nil, fmt.Errorf("CEL: %w (in %q)", err, source)
	}
	isMixed, err := sameTypes(env, checked, firstMixed(read), whole)
	if err != nil {
		return nil, err
	}
	readsName := false
	if err = c.inspectExpression(native); err == nil {
		readsName, err = readsPodName(native)
	}
	if err != nil {
		return nil, fmt.Errorf("CEL: %w (in %q)", err, problem.Shorten(source))
	}
	prog, err := env.Program(checked, append(c.language.limitOptions(native), cel.EvalOptions(cel.OptOptimize))...)
	if err != nil {
		return nil, fmt.Errorf("CEL: %w (in %q)", err, problem.Shorten(source))
	}
	p := &Expression{source: source, fastpath: newFastpath(native, c.params, c.lazyVariables(), s.loopNames()), pure: true, checked: native, env: env, prog: prog, out: checked.OutputType(), mixed: isMixed}
	if p.readsPodName = readsName; readsName {
		c.reads.parts[podName] = true
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(native), ast.AllMatcher()) {
		p.unknown = p.unknown || e.Kind() != ast.LiteralKind && native.GetType(e.ID()).Kind() == types.DynKind // the name in x.?name has no type
		if e.Kind() == ast.IdentKind {
			p.noteIdent(e, c.params, s.loops)
		}
	}
	for _, v := range read {
		p.variables = append(p.variables, v)
		p.params, p.ofPod = append(p.params, v.program.params...), p.ofPod || v.program.ofPod
		p.given, p.pure = p.given|v.program.given, p.pure && v.program.pure
		p.unknown = p.unknown || v.program.unknown
	}
	slices.Sort(p.params)
	p.params = slices.Compact(p.params)
	for _, name := range p.params {
		c.reads.params[name] = true
	}
	p.conjuncts = sync.OnceValue(p.compileConjuncts)
	return p, nil
}

// noteIdent records what an expression reads, for one of its identifiers.
func (p *Expression) noteIdent(ident ast.NavigableExpr, declared []v1alpha1.Param, loops []*Loop) {
	for _, l := range loops {
		if i := slices.Index(l.names, ident.AsIdent()); i >= 0 {
			p.free |= 1 << (l.depth + i)
			p.ofPod, p.unknown = p.ofPod || l.list.ofPod, p.unknown || l.list.unknown
			return
		}
	}
	switch ident.AsIdent() {
	case "pod":
		p.ofPod = true
	case "params":
		field := fieldRead(ident)
		p.pure = p.pure && field != ""
		for i := range declared {
			if field != "" && declared[i].Name != field {
				continue // without a field, it may read any of them
			}
			p.params = append(p.params, declared[i].Name)
			if p.given |= 1 << i; i >= params.MaxIndexes {
				p.pure = false
			}
		}
		return
	case "variables":
		return // what they read is recorded
	}
	p.pure = false
}

// CompileBool compiles a condition at a line.
func (c *Compiler) CompileBool(s *Scope, source string, line int) (*Expression, error) {
	p, err := c.compileExpression(s, source, false)
	if err != nil {
		return nil, err
	}
	if !p.out.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("CEL: %q gives %s, but true or false is needed here%s", source, diagnostics.TypeName(p.out), diagnostics.BoolHint(p.out, source))
	}
	p.line = line
	return p, nil
}

// inspectExpression rejects expressions that might not return the same bytes every time. It records which
// parts of the pod they read.
func (c *Compiler) inspectExpression(checked *ast.AST) error {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		if nestingLevels(checked.GetType(e.ID())) > maxNesting {
			return fmt.Errorf("lists are nested more than %d deep", maxNesting)
		}
		c.reads.gated = c.reads.gated || wholeWithGated(e)
		switch e.Kind() {
		case ast.IdentKind:
			if err := plainRead(c.params, e); err != nil {
				return err
			}
			c.reads.parts.noteIdent(e)
			c.reads.request = c.reads.request || requestOf(e)
			c.reads.serviceAccount = c.reads.serviceAccount || readsAccount(e)
		case ast.StructKind:
			return fmt.Errorf("%s{...} is a message, which expressions cannot make; write a map such as {'name': 'x'}", e.AsStruct().TypeName())
		case ast.CallKind:
			switch call := e.AsCall(); {
			case isWhen(checked, e) && isTwiceOptional(checked.GetType(e.ID())):
				return errors.New("when() has a value that may be missing by itself; write CONDITION ? VALUE : optional.none()")
			case call.FunctionName() == "dyn" && HasStruct(checked.GetType(call.Args()[0].ID())):
				return errors.New("dyn() of an object hides which of its fields are not set yet; read a field of the object instead")
			case call.IsMemberFunction() && len(call.Args()) == 1 && checked.GetType(call.Target().ID()).Kind() == types.TimestampKind && strings.HasPrefix(call.FunctionName(), "get"):
				return fmt.Errorf("%s() with a time zone is not the same on every machine; leave out the time zone for UTC", call.FunctionName())
			case call.FunctionName() == library.JSONMarshal && strings.HasPrefix(checked.GetType(call.Args()[0].ID()).TypeName(), "pillion."):
				return errors.New(library.JSONMarshal + "() cannot take this object as a whole; name its fields, as in {'name': ns.name}")
			case call.FunctionName() == library.JSONMarshal && unsetObject(checked.GetType(call.Args()[0].ID())) != "":
				return fmt.Errorf("%s of %s has fields that are not set yet; read a field of it instead", library.JSONMarshal+"()", unsetObject(checked.GetType(call.Args()[0].ID())))
			default:
				if err := checkPattern(call.FunctionName(), call.Args()); err != nil {
					return err
				}
			}
		}
		if err := hidesUnset(checked, e); err != nil {
			return err
		}
		if err := checkHiddenNesting(checked, e); err != nil {
			return err
		}
	}
	return nil
}

// IsDeclared reports whether there is a variable of that name.
func (c *Compiler) IsDeclared(variable string) bool { return c.provider.variables[variable] != nil }

// DeclareVariable compiles a variable. Others are the declarations of this variable and of those below it. An error names the one of
// them that the variable reads, because a variable can read only those above it.
func (c *Compiler) DeclareVariable(declared v1alpha1.Variable, others []v1alpha1.Variable) error {
	p, err := c.compileExpression(c.pod, declared.Expression, true)
	if err != nil {
		for _, v := range others {
			if regexp.MustCompile(`\bvariables\.\??` + regexp.QuoteMeta(v.Name) + `\b`).MatchString(declared.Expression) {
				return fmt.Errorf("variables.%s is not declared above; a variable can read only those above it", v.Name)
			}
		}
		return err
	}
	v := &Variable{lazy: lazy{declared.Name, len(c.variables), p.evalValue}, program: p}
	c.variables = append(c.variables, v)
	f := values.NewField(p.out, func(*Input) any { return nil })
	f.GetFrom = func(of any) (any, error) { return v.evalOnce(of.(*Input)) }
	c.provider.variables[v.name] = f
	return nil
}

func (c *Compiler) lazyVariables() []*lazy {
	all := make([]*lazy, len(c.variables))
	for i, v := range c.variables {
		all[i] = &v.lazy
	}
	return all
}

// variablesRead returns the variables that an expression reads. It returns an error if it uses
// `variables` as a whole.
func (c *Compiler) variablesRead(checked *ast.AST) (read []*Variable, err error) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.KindMatcher(ast.IdentKind)) {
		if e.AsIdent() != "variables" {
			continue
		}
		parent, ok := e.Parent()
		if !ok || parent.Kind() != ast.SelectKind {
			return nil, errors.New("variables can be used only as variables.NAME")
		}
		for _, v := range c.variables {
			if v.name == parent.AsSelect().FieldName() && !slices.Contains(read, v) {
				read = append(read, v)
				v.used = true
			}
		}
	}
	return read, nil
}

// firstMixed returns the first variable with values of different types, or "".
func firstMixed(all []*Variable) string {
	for _, v := range all {
		if v.program.mixed {
			return v.name
		}
	}
	return ""
}

// HasStruct reports whether the type is an object with fields, or contains one.
func HasStruct(t *types.Type) bool {
	return t.Kind() == types.StructKind || slices.ContainsFunc(t.Parameters(), HasStruct)
}

// CompileLoop compiles the list or the map of a ${forEach} at a line. Names are those of the loop's variables: the value's, or the
// key's and the value's. It returns the scope with these variables.
func (c *Compiler) CompileLoop(s *Scope, names []string, source string, line int) (*Loop, *Scope, error) {
	p, err := c.compileExpression(s, source, false)
	if err != nil {
		return nil, nil, err
	}
	of := loopTypes(p.out, len(names))
	if of == nil {
		return nil, nil, fmt.Errorf("CEL: %q gives %s%s", source, diagnostics.TypeName(p.out), diagnostics.LoopHint(p.out, source, names))
	}
	p.line = line
	var variables []cel.EnvOption
	for i, name := range names {
		variables = append(variables, cel.Variable(name, of[i]))
	}
	within, err := s.env.Extend(variables...)
	l := &Loop{names: names, list: p, depth: len(s.loopNames())}
	return l, &Scope{within, append(slices.Clip(s.loops), l)}, err
}

// loopTypes returns the types of the variables of a loop over a value: of the value's, or of the key's and the value's. It returns nil
// if no such loop is possible. A value of unknown type must be a map, which comes from JSON.
func loopTypes(out *types.Type, variables int) []*types.Type {
	switch {
	case out.Kind() == types.ListKind && variables == 1:
		return out.Parameters()
	case out.Kind() == types.ListKind:
		return []*types.Type{types.IntType, out.Parameters()[0]}
	case out.Kind() == types.MapKind && variables > 1:
		return out.Parameters()
	case out.Kind() == types.DynKind && variables > 1:
		return []*types.Type{types.StringType, types.DynType}
	}
	return nil
}
