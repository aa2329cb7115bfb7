// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"github.com/pillion-dev/pillion/templates/cel/library"
)

// language is the CEL environment that all templates share. Its functions come from CEL's standard, from CEL's extension libraries
// and from the package library.
type language struct {
	*cel.Env

	charges
}

// theLanguage returns the language. CEL's own way to add a library gives each program a copy of all
// costs of the library. The functions of most libraries are therefore declared again without it.
var theLanguage = sync.OnceValues(func() (*language, error) {
	usual, err := cel.NewEnv(
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(),                 // its functions have costs from version 5 on
		cel.EnableMacroCallTracking(), // for translations into other languages, see Expression
	)
	if err != nil {
		return nil, err
	}
	whole, err := usual.Extend(append(library.Functions(), ext.Lists(), ext.Math(), ext.Encoders(ext.EncodersVersion(0)),
		ext.Regex(), ext.Network(), ext.Sets(), ext.TwoVarComprehensions(), ext.Bindings(ext.BindingsVersion(0)))...)
	if err != nil {
		return nil, err
	}
	l := &language{charges: charges{}}
	options, err := l.declareFunctions(usual, whole)
	if err != nil {
		return nil, err
	}
	l.Env, err = usual.Extend(options...)
	return l, err
})

// declareFunctions declares the functions and macros that usual lacks. Before a call that costs too much, a
// function stops the evaluation. CEL charges for a call only afterwards. That may be a gigabyte too
// late, for example if each letter of 16 KiB is replaced by 16 KiB. Functions of usual that need
// such a check are declared again.
func (l *language) declareFunctions(usual, whole *cel.Env) (options []cel.EnvOption, err error) {
	known, all := usual.Functions(), whole.Functions()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		overloads, err := l.declareOverloads(all[name], known[name])
		if err != nil {
			return nil, err
		}
		if len(overloads) > 0 {
			options = append(options, cel.Function(name, overloads...))
		}
	}
	for _, m := range whole.Macros() {
		if !slices.ContainsFunc(usual.Macros(), func(u cel.Macro) bool { return u.MacroKey() == m.MacroKey() }) {
			options = append(options, cel.Macros(m))
		}
	}
	return options, nil
}

func (l *language) declareOverloads(f, known *decls.FunctionDecl) (options []cel.FunctionOpt, err error) {
	bindings, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	made := map[string]*functions.Overload{}
	for _, b := range bindings {
		made[b.Operator] = b
	}
	for _, o := range f.OverloadDecls() {
		isNew := !slices.ContainsFunc(known.OverloadDecls(), func(k *decls.OverloadDecl) bool { return k.ID() == o.ID() })
		if !isNew && !isBounded(f.Name()) || o.ResultType().IsExactType(types.NewListType(types.DynType)) {
			continue // the type of flatten(depth) is unknown, so nothing could be checked
		}
		l.charges[o.ID()] = isNew
		binding := made[o.ID()]
		if binding == nil {
			binding = made[f.Name()] // of all overloads
		}
		call, declare := callOf(binding), cel.Overload
		if o.IsMemberFunction() {
			declare = cel.MemberOverload
		}
		options = append(options, declare(o.ID(), o.ArgTypes(), o.ResultType(), cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			if err := stopCostlyCall(f.Name(), args); err != nil {
				return err
			}
			return call(args...)
		})))
	}
	return options, nil
}

// callOf returns a function that calls the implementation of an overload, with any number of
// arguments.
func callOf(o *functions.Overload) functions.FunctionOp {
	switch {
	case o.Unary != nil:
		return func(args ...ref.Val) ref.Val { return o.Unary(args[0]) }
	case o.Binary != nil:
		return func(args ...ref.Val) ref.Val { return o.Binary(args[0], args[1]) }
	}
	return o.Function
}
