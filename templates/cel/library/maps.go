// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// Merge is the name of the function that merges two maps.
const Merge = "merge"

// MapInsert is the name of the function by which the macros transformMap and transformMapEntry add a key and a value, or the entries
// of a map, to the map that they make. Expressions cannot call it.
const MapInsert = "cel.@mapInsert"

// mapFunctions declares map.merge(other). CEL and the API server have no such function. This one is that of kro, another project
// for Kubernetes with templates in CEL: as everywhere in Pillion, what is there is kept.
func mapFunctions() []cel.EnvOption {
	m := cel.MapType(cel.TypeParamType("K"), cel.TypeParamType("V"))
	return []cel.EnvOption{declareMethod(Merge, "map_merge", takesTypes(m, m), m, mergeMaps)}
}

// mergeMaps is map.merge(other): the entries of the map, and those of the other one whose keys it lacks.
func mergeMaps(args ...ref.Val) ref.Val {
	merged := map[ref.Val]ref.Val{}
	for _, arg := range args {
		for key, value := range values.Entries(arg.(traits.Mapper)) {
			if types.IsUnknownOrError(value) {
				return value
			}
			if _, ok := merged[key]; !ok {
				merged[key] = value
			}
		}
	}
	return values.WithOrder(types.NewRefValMap(types.DefaultTypeAdapter, merged))
}
