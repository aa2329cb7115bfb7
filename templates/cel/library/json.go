// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// JSONMarshal is the name of the function that writes a value as JSON. Its argument may have any type.
const JSONMarshal = "json.marshal"

// marshalJSON is json.marshal(value): canonical JSON, with the keys of objects sorted and no spaces.
func marshalJSON(args ...ref.Val) ref.Val {
	text, err := values.AppendJSON(nil, args[0])
	if err != nil {
		return types.NewErr("%s(): %v", JSONMarshal, err)
	}
	return types.String(text)
}
