// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// readPatchExpression adds a JSON patch.
func (c *converter) readPatchExpression(f *field, workload bool) {
	p, err := parseExpression(f, workload)
	if err != nil {
		c.o.leaveOut(f, "%v", err)
		return
	}
	f.embedded = true
	ops, err := p.readOperations(p.root, f, "")
	if err != nil {
		f.children, f.embedded = nil, false
		c.o.leaveOut(f, "%v", err)
		return
	}
	f.read = true
	c.addPatch(f, withoutAlternatives(ops), workload)
}

// readOperations returns the operations of an expression that makes a list of them.
func (p *policyExpression) readOperations(e ast.Expr, f *field, when string) (all []operation, err error) {
	join := func(parts ...ast.Expr) ([]operation, error) {
		for _, part := range parts {
			ops, err := p.readOperations(part, f, when)
			if err != nil {
				return nil, err
			}
			all = append(all, ops...)
		}
		return all, nil
	}
	switch {
	case e.Kind() == ast.ListKind:
		for i, item := range e.AsList().Elements() {
			op, err := p.readOperation(item, f, when)
			if err != nil || e.AsList().IsOptional(int32(i)) {
				return nil, fmt.Errorf("an item of the patch is not a JSONPatch{...} with a constant op and path; write what it adds into the template")
			}
			all = append(all, op)
		}
		return all, nil
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Add:
		return join(e.AsCall().Args()...)
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Conditional:
		text, err := p.translateExpr(e.AsCall().Args()[0])
		if err != nil {
			return nil, err
		}
		outer := when
		when = joinConditions([]condition{{expression: outer}, {expression: text}})
		if _, err = join(e.AsCall().Args()[1]); err != nil {
			return nil, err
		}
		when = joinConditions([]condition{{expression: outer}, {expression: "!(" + text + ")"}})
		return join(e.AsCall().Args()[2])
	}
	return nil, fmt.Errorf("the patch is not a list of JSONPatch{...}; write what it adds into the template")
}

// readOperation returns one operation of a patch.
func (p *policyExpression) readOperation(e ast.Expr, f *field, when string) (operation, error) {
	op := operation{when: when}
	root := p.buildField(e, f, "", fmt.Sprintf("%s%s[%d]", f.path, inside, len(f.children)))
	if e.Kind() == ast.MapKind || e.Kind() == ast.StructKind && e.AsStruct().TypeName() == "JSONPatch" {
		f.children = append(f.children, root)
		op.at, op.value = root, root.get("value")
		for _, entry := range entriesOf(e) {
			text, constant := constantText(entry.value)
			switch {
			case entry.name == "op" && constant:
				op.op = text
			case entry.name == "path" && constant:
				op.path = text
			}
		}
	}
	if op.op == "" || op.path == "" {
		return op, fmt.Errorf("not an operation")
	}
	return op, nil
}

type namedValue struct {
	name  string
	value ast.Expr
}

// entriesOf returns the fields of an object or of a map.
func entriesOf(e ast.Expr) (all []namedValue) {
	if e.Kind() == ast.StructKind {
		for _, entry := range e.AsStruct().Fields() {
			all = append(all, namedValue{entry.AsStructField().Name(), entry.AsStructField().Value()})
		}
		return all
	}
	for _, entry := range e.AsMap().Entries() {
		if key, ok := constantText(entry.AsMapEntry().Key()); ok {
			all = append(all, namedValue{key, entry.AsMapEntry().Value()})
		}
	}
	return all
}
