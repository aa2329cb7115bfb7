// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/library"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// compiler compiles the expressions of one template.
type compiler struct {
	language *language
	env      *cel.Env // params, pod, ns, serviceAccount, request
	each     *cel.Env // env plus container
	provider *provider
	params   []v1alpha1.Param
	reads    reads
	uses     map[string]bool // parameters

	variables []*variable // that are compiled so far
	loops     []*loop     // around the expression, the innermost last
	origins   map[*program]*origin

	readsRequest bool
	readsGated   bool // see [Template.ReadsGated]
	readsAccount bool
	whole        bool // the expression computes an object, so a map may have values of different types
}

func newCompiler(params []v1alpha1.Param) (*compiler, error) {
	language, err := theLanguage()
	if err != nil {
		return nil, err
	}
	provider := newProvider(language.CELTypeProvider(), params)
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
	return &compiler{language: language, provider: provider, env: env, each: each, params: params, reads: reads{}, uses: map[string]bool{}, origins: map[*program]*origin{}}, nil
}

// compileExpression checks and compiles one expression. An error is one sentence.
func (c *compiler) compileExpression(env *cel.Env, source string) (*program, error) {
	checked, issues := env.Compile(source)
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
	isMixed, err := sameTypes(env, checked, firstMixed(read), c.whole)
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
	p := &program{source: source, pure: true, checked: native, env: env, prog: prog, out: checked.OutputType(), mixed: isMixed}
	if p.readsPodName = readsName; readsName {
		c.reads[podName] = true
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(native), ast.KindMatcher(ast.IdentKind)) {
		p.noteIdent(e, c.params, c.loops)
	}
	for _, v := range read {
		p.variables = append(p.variables, v)
		p.params, p.ofPod = append(p.params, v.program.params...), p.ofPod || v.program.ofPod
		p.given, p.pure = p.given|v.program.given, p.pure && v.program.pure
	}
	slices.Sort(p.params)
	p.params = slices.Compact(p.params)
	for _, name := range p.params {
		c.uses[name] = true
	}
	return p, nil
}

// compileBool compiles a condition.
func (c *compiler) compileBool(env *cel.Env, source string) (*program, error) {
	p, err := c.compileExpression(env, source)
	if err != nil {
		return nil, err
	}
	if !p.out.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("CEL: %q gives %s, but true or false is needed here%s", source, diagnostics.TypeName(p.out), diagnostics.BoolHint(p.out, source))
	}
	return p, nil
}

// inspectExpression rejects expressions that might not return the same bytes every time. It records which
// parts of the pod they read.
func (c *compiler) inspectExpression(checked *ast.AST) error {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		if nestingLevels(checked.GetType(e.ID())) > maxNesting {
			return fmt.Errorf("lists are nested more than %d deep", maxNesting)
		}
		c.readsGated = c.readsGated || wholeWithGated(e)
		switch e.Kind() {
		case ast.LiteralKind:
			if text, ok := e.AsLiteral().(types.String); ok && strings.Contains(string(text), "${") {
				return fmt.Errorf("${ in a string inserts no value; join strings, as in 'text' + %s; for the characters, write '$' + '{'", diagnostics.FirstExpression(string(text)))
			}
		case ast.IdentKind:
			if err := plainRead(c.params, e); err != nil {
				return err
			}
			c.reads.noteIdent(e)
			c.readsRequest = c.readsRequest || requestOf(e)
			_, more := accountUse(e)
			c.readsAccount = c.readsAccount || more
		case ast.StructKind:
			return fmt.Errorf("%s{...} is a message, which expressions cannot make; write a map such as {'name': 'x'}", e.AsStruct().TypeName())
		case ast.CallKind:
			switch call := e.AsCall(); {
			case call.FunctionName() == "dyn" && hasStruct(checked.GetType(call.Args()[0].ID())):
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

// declareVariable compiles a variable. Others are it and those below it.
func (c *compiler) declareVariable(declared v1alpha1.Variable, others []v1alpha1.Variable) error {
	c.whole = true
	p, err := c.compileExpression(c.env, declared.Expression)
	c.whole = false
	if err != nil {
		for _, v := range others {
			if regexp.MustCompile(`\bvariables\.\??` + regexp.QuoteMeta(v.Name) + `\b`).MatchString(declared.Expression) {
				return fmt.Errorf("variables.%s is not declared above; a variable can read only those above it", v.Name)
			}
		}
		return err
	}
	v := &variable{name: declared.Name, index: len(c.variables), program: p}
	c.variables = append(c.variables, v)
	f := values.NewField(p.out, func(*Input) any { return nil })
	f.GetFrom = func(of any) (any, error) { return v.evalOnce(of.(*Input)) }
	c.provider.variables[v.name] = f
	return nil
}

// variablesRead returns the variables that an expression reads. It returns an error if it uses
// `variables` as a whole.
func (c *compiler) variablesRead(checked *ast.AST) (read []*variable, err error) {
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
func firstMixed(all []*variable) string {
	for _, v := range all {
		if v.program.mixed {
			return v.name
		}
	}
	return ""
}

// hasStruct reports whether the type is an object with fields, or contains one.
func hasStruct(t *types.Type) bool {
	return t.Kind() == types.StructKind || slices.ContainsFunc(t.Parameters(), hasStruct)
}

// compilePieces splits a string with ${...} into literals and expressions, in order. $${ is a literal ${.
func (c *compiler) compilePieces(env *cel.Env, text string) ([]piece, error) {
	var pieces []piece
	var literal strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			break
		}
		if i > 0 && text[i-1] == '$' {
			literal.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		literal.WriteString(text[:i])
		source, rest, ok := diagnostics.CutExpression(text[i+2:])
		if !ok {
			return nil, fmt.Errorf("the ${ has no closing }; for a literal ${, write $${")
		}
		p, err := c.compileExpression(env, strings.TrimSpace(source))
		if err != nil {
			return nil, err
		}
		if literal.Len() > 0 {
			pieces = append(pieces, piece{literal: literal.String()})
			literal.Reset()
		}
		pieces, text = append(pieces, piece{program: p}), rest
	}
	literal.WriteString(text)
	if literal.Len() > 0 || len(pieces) == 0 {
		pieces = append(pieces, piece{literal: literal.String()})
	}
	return pieces, nil
}
