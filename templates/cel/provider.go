// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// provider adds the fields of params and variables, which differ from template to template, to the types that all templates
// share. Loading a template therefore finds a misspelled field.
type provider struct {
	types.Provider

	params    map[string]*types.FieldType
	variables map[string]*types.FieldType
}

func newProvider(base types.Provider, declared []v1alpha1.Param) *provider {
	p := &provider{Provider: values.NewProvider(base), params: map[string]*types.FieldType{}, variables: map[string]*types.FieldType{}}
	for i := range declared {
		name := declared[i].Name
		f := values.NewField(params.CELType(&declared[i]), func(v params.Values) any { return v.CEL(name) })
		if declared[i].Optional {
			f.IsSet = func(obj any) bool { return obj.(params.Values).IsSet(name) }
		}
		p.params[name] = f
	}
	return p
}

// ownFields returns the fields of params or variables. It returns false for other types.
func (p *provider) ownFields(name string) (map[string]*types.FieldType, bool) {
	switch name {
	case values.ParamsType:
		return p.params, true
	case values.VariablesType:
		return p.variables, true
	}
	return nil, false
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.ownFields(name); ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	fields, ok := p.ownFields(name)
	if !ok {
		return p.Provider.FindStructFieldNames(name)
	}
	return slices.Collect(maps.Keys(fields)), true
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := p.ownFields(name)
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	f := fields[field]
	return f, f != nil
}
