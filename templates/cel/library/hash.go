// SPDX-License-Identifier: Apache-2.0

package library

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// hashFunctions declares hash.sha256(text). Its result is a string, because a template has a place for strings only: a hash is a
// part of a name, or the value of an annotation.
func hashFunctions() []cel.EnvOption {
	return []cel.EnvOption{declareFunction("hash.sha256", "hash_sha256_string", takesTypes(cel.StringType), cel.StringType, sha256Hex)}
}

// sha256Hex is hash.sha256(text): the SHA-256 of the UTF-8 bytes of a string, as 64 lower-case hex digits.
func sha256Hex(args ...ref.Val) ref.Val {
	sum := sha256.Sum256([]byte(values.TextOf(args[0])))
	return types.String(hex.EncodeToString(sum[:]))
}
