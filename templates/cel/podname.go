// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// The mutating webhook sees no name if the API server generates it from generateName, and the
// validating webhook sees the generated one. Expressions must see neither, so that both give the same
// result. The pods of a StatefulSet have generateName and a name of their own, which both webhooks see.

// HasGeneratedName reports whether the API server may have generated the name in a pod's metadata.
func HasGeneratedName(metadata *jsontree.Node) bool {
	name, base := metadata.Get("name").Text(), metadata.Get("generateName").Text()
	return name != "" && base != "" && isGenerated(name, base)
}

// isGenerated reports whether the API server may have generated a name: it appends random letters.
func isGenerated(name, base string) bool {
	const random, longest = 5, 63
	rest, ok := strings.CutPrefix(name, base[:min(len(base), longest-random)])
	return ok && len(rest) == random && strings.Trim(rest, "bcdfghjklmnpqrstvwxz2456789") == ""
}

// readsName reports whether a part of an expression reads the name of a pod, and how: as .?name or by
// has(), or else as .name.
func readsName(checked *ast.AST, e ast.Expr) (reads, optionally bool) {
	of := func(operand ast.Expr) (metadata, optional bool) {
		t := checked.GetType(operand.ID())
		if optional = t.Kind() == types.OpaqueKind && len(t.Parameters()) == 1; optional {
			t = t.Parameters()[0]
		}
		return t.TypeName() == reflect.TypeFor[metav1.ObjectMeta]().Name(), optional
	}
	switch e.Kind() {
	case ast.SelectKind:
		metadata, optional := of(e.AsSelect().Operand())
		return metadata && e.AsSelect().FieldName() == "name", optional || e.AsSelect().IsTestOnly()
	case ast.CallKind:
		if e.AsCall().FunctionName() == operators.OptSelect {
			metadata, _ := of(e.AsCall().Args()[0])
			name, _ := StringLiteral(e.AsCall().Args()[1])
			return metadata && name == "name", true
		}
	}
	return false, false
}

// readsPodName reports whether an expression reads the name of the pod. It returns an error if the
// expression needs the name, which not every pod has.
func readsPodName(checked *ast.AST) (found bool, err error) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		reads, optionally := readsName(checked, e)
		if reads && !optionally {
			return true, errors.New("not every pod has a name when it is admitted; write pod.metadata.?name.orValue('...'), " +
				"or give the container the name through the downward API (env valueFrom.fieldRef)")
		}
		found = found || reads
	}
	return found, nil
}

// podName is the part of a pod in [Dependencies.Parts] that is its name.
const podName = "metadata.name"
