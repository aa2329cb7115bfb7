// SPDX-License-Identifier: Apache-2.0

// Package library has the functions of expressions beyond CEL's standard and its extension libraries: those of the API server
// (quantity, url, semver, find, and those of lists), with the same names and results, and json.marshal, merge, hash.sha256 and the macro when.
//
// They are not from k8s.io/apiserver: that adds 0.6 MB to the program, is made for another version of CEL, and its quantity()
// takes hours for a string such as 1e2147483647.
package library

import (
	"slices"

	"github.com/google/cel-go/cel"
)

// Functions returns the options that declare the functions of this package in an environment: quantity, url, semver, find and
// findAll with their methods, those of lists and maps, json.marshal, hash.sha256, and the macro when. None of them limits what it costs.
func Functions() []cel.EnvOption {
	return slices.Concat(quantityFunctions(), urlFunctions(), semverFunctions(), ListFunctions(), mapFunctions(), hashFunctions(), findFunctions(), []cel.EnvOption{
		whenMacro(),
		declareFunction(JSONMarshal, "json_marshal", takesTypes(cel.TypeParamType("T")), cel.StringType, marshalJSON),
	})
}
