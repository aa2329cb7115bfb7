// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
)

type implementation = func(args ...ref.Val) ref.Val

func declareFunction(name, id string, in []*cel.Type, out *cel.Type, f implementation) cel.EnvOption {
	return cel.Function(name, cel.Overload(id, in, out, cel.FunctionBinding(f)))
}

func declareMethod(name, id string, in []*cel.Type, out *cel.Type, f implementation) cel.EnvOption {
	return cel.Function(name, cel.MemberOverload(id, in, out, cel.FunctionBinding(f)))
}

func takesTypes(in ...*cel.Type) []*cel.Type { return in }
