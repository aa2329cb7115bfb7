// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// This file has the API server's functions, with the same names and results, as far as CEL's own
// libraries lack them.

var (
	quantityType = &opaqueType[resource.Quantity]{
		types.NewOpaqueType("kubernetes.Quantity"), func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 },
	}
	urlType = &opaqueType[*url.URL]{
		types.NewOpaqueType("kubernetes.URL"), func(a, b *url.URL) bool { return a.String() == b.String() },
	}
	semverType = &opaqueType[*version.Version]{
		types.NewOpaqueType("kubernetes.Semver"), func(a, b *version.Version) bool { return compareVersions(a, b) == 0 },
	}
)

type implementation = func(args ...ref.Val) ref.Val

func function(name, id string, in []*cel.Type, out *cel.Type, f implementation) cel.EnvOption {
	return cel.Function(name, cel.Overload(id, in, out, cel.FunctionBinding(f)))
}

func method(name, id string, in []*cel.Type, out *cel.Type, f implementation) cel.EnvOption {
	return cel.Function(name, cel.MemberOverload(id, in, out, cel.FunctionBinding(f)))
}

func takesTypes(in ...*cel.Type) []*cel.Type { return in }

func ownFunctions() []cel.EnvOption {
	return slices.Concat(quantityFunctions(), urlFunctions(), semverFunctions(), []cel.EnvOption{
		function(marshalFunction, "json_marshal", takesTypes(cel.TypeParamType("T")), cel.StringType, marshal),
		method("find", "string_find_string", takesTypes(cel.StringType, cel.StringType), cel.StringType, find),
		method("findAll", "string_find_all_string", takesTypes(cel.StringType, cel.StringType), cel.ListType(cel.StringType), findAll),
		method("findAll", "string_find_all_string_int", takesTypes(cel.StringType, cel.StringType, cel.IntType), cel.ListType(cel.StringType), findAll),
	})
}

func quantityFunctions() []cel.EnvOption {
	q := quantityType.Type
	one, two, withInt := takesTypes(q), takesTypes(q, q), takesTypes(q, cel.IntType)
	compare := func(a, b resource.Quantity) int { return a.Cmp(b) }
	return []cel.EnvOption{
		function("quantity", "string_to_quantity", takesTypes(cel.StringType), q, parsed(quantityType, ParseQuantity)),
		function("isQuantity", "is_quantity_string", takesTypes(cel.StringType), cel.BoolType, parses(ParseQuantity)),
		function("string", "quantity_to_string", one, cel.StringType, of(func(a resource.Quantity) ref.Val { return types.String(a.String()) })),
		method("sign", "quantity_sign", one, cel.IntType, of(func(a resource.Quantity) ref.Val { return types.Int(a.Sign()) })),
		method("isInteger", "quantity_is_integer", one, cel.BoolType, of(func(a resource.Quantity) ref.Val { _, ok := a.AsInt64(); return types.Bool(ok) })),
		method("asInteger", "quantity_get_int", one, cel.IntType, of(asInteger)),
		method("asApproximateFloat", "quantity_get_float", one, cel.DoubleType, of(func(a resource.Quantity) ref.Val { return types.Double(a.AsApproximateFloat64()) })),
		method("add", "quantity_add", two, q, sum((*resource.Quantity).Add)),
		method("add", "quantity_add_int", withInt, q, sum((*resource.Quantity).Add)),
		method("sub", "quantity_sub", two, q, sum((*resource.Quantity).Sub)),
		method("sub", "quantity_sub_int", withInt, q, sum((*resource.Quantity).Sub)),
		method("compareTo", "quantity_compare_to", two, cel.IntType, compared(compare, func(c int) ref.Val { return types.Int(c) })),
		method("isLessThan", "quantity_is_less_than", two, cel.BoolType, compared(compare, func(c int) ref.Val { return types.Bool(c < 0) })),
		method("isGreaterThan", "quantity_is_greater_than", two, cel.BoolType, compared(compare, func(c int) ref.Val { return types.Bool(c > 0) })),
	}
}

func urlFunctions() []cel.EnvOption {
	one := takesTypes(urlType.Type)
	part := func(f func(*url.URL) string) implementation {
		return of(func(u *url.URL) ref.Val { return types.String(f(u)) })
	}
	return []cel.EnvOption{
		function("url", "string_to_url", takesTypes(cel.StringType), urlType.Type, parsed(urlType, parseURL)),
		function("isURL", "is_url_string", takesTypes(cel.StringType), cel.BoolType, parses(parseURL)),
		method("getScheme", "url_get_scheme", one, cel.StringType, part(func(u *url.URL) string { return u.Scheme })),
		method("getHost", "url_get_host", one, cel.StringType, part(func(u *url.URL) string { return u.Host })),
		method("getHostname", "url_get_hostname", one, cel.StringType, part((*url.URL).Hostname)),
		method("getPort", "url_get_port", one, cel.StringType, part((*url.URL).Port)),
		method("getEscapedPath", "url_get_escaped_path", one, cel.StringType, part((*url.URL).EscapedPath)),
		method("getQuery", "url_get_query", one, cel.MapType(cel.StringType, cel.ListType(cel.StringType)), of(query)),
	}
}

func semverFunctions() []cel.EnvOption {
	v := semverType.Type
	one, two, loose := takesTypes(v), takesTypes(v, v), takesTypes(cel.StringType, cel.BoolType)
	number := func(f func(*version.Version) uint) implementation {
		return of(func(v *version.Version) ref.Val { return types.Uint(f(v)).ConvertToType(types.IntType) })
	}
	return []cel.EnvOption{
		function("semver", "string_to_semver", takesTypes(cel.StringType), v, parsed(semverType, parseVersion)),
		function("semver", "string_bool_to_semver", loose, v, normalized(parsed(semverType, parseVersion))),
		function("isSemver", "is_semver_string", takesTypes(cel.StringType), cel.BoolType, parses(parseVersion)),
		function("isSemver", "is_semver_string_bool", loose, cel.BoolType, normalized(parses(parseVersion))),
		method("major", "semver_major", one, cel.IntType, number((*version.Version).Major)),
		method("minor", "semver_minor", one, cel.IntType, number((*version.Version).Minor)),
		method("patch", "semver_patch", one, cel.IntType, number((*version.Version).Patch)),
		method("compareTo", "semver_compare_to", two, cel.IntType, compared(compareVersions, func(c int) ref.Val { return types.Int(c) })),
		method("isLessThan", "semver_is_less_than", two, cel.BoolType, compared(compareVersions, func(c int) ref.Val { return types.Bool(c < 0) })),
		method("isGreaterThan", "semver_is_greater_than", two, cel.BoolType, compared(compareVersions, func(c int) ref.Val { return types.Bool(c > 0) })),
	}
}

// parsed is a function that makes a value from a string.
func parsed[T any](typ *opaqueType[T], parse func(string) (T, error)) implementation {
	return func(args ...ref.Val) ref.Val {
		text := textOf(args[0])
		v, err := parse(text)
		if err != nil {
			return types.WrapErr(err)
		}
		return opaque[T]{typ, v, text}
	}
}

// parses is a function that reports whether parsed would return a value.
func parses[T any](parse func(string) (T, error)) implementation {
	return func(args ...ref.Val) ref.Val {
		_, err := parse(textOf(args[0]))
		return types.Bool(err == nil)
	}
}

// of is a function of an opaque value.
func of[T any](f func(T) ref.Val) implementation {
	return func(args ...ref.Val) ref.Val {
		if v, ok := args[0].(opaque[T]); ok {
			return f(v.value)
		}
		return types.MaybeNoSuchOverloadErr(args[0])
	}
}

// compared is a function of two opaque values.
func compared[T any](compare func(a, b T) int, result func(int) ref.Val) implementation {
	return func(args ...ref.Val) ref.Val {
		a, ok1 := args[0].(opaque[T])
		b, ok2 := args[1].(opaque[T])
		if !ok1 || !ok2 {
			return types.MaybeNoSuchOverloadErr(args[1])
		}
		return result(compare(a.value, b.value))
	}
}

func asInteger(q resource.Quantity) ref.Val {
	if i, ok := q.AsInt64(); ok {
		return types.Int(i)
	}
	return types.NewErr("the quantity %s is not an integer of 64 bits", q.String())
}

// sum adds a quantity or an integer to a quantity, or subtracts it.
func sum(add func(to *resource.Quantity, q resource.Quantity)) implementation {
	return func(args ...ref.Val) ref.Val {
		a, ok := args[0].(opaque[resource.Quantity])
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		result := a.value.DeepCopy()
		switch b := args[1].(type) {
		case opaque[resource.Quantity]:
			add(&result, b.value)
		case types.Int:
			add(&result, *resource.NewQuantity(int64(b), resource.DecimalSI))
		}
		return opaque[resource.Quantity]{quantityType, result, result.String()}
	}
}

// parseURL parses an absolute URL or an absolute path, as the API server does.
func parseURL(text string) (*url.URL, error) {
	if _, err := url.ParseRequestURI(text); err != nil {
		return nil, fmt.Errorf("%q is not an absolute URL or path", text)
	}
	return url.Parse(text)
}

// query returns the parameters of a URL, in the order of their names.
func query(u *url.URL) ref.Val {
	n := jsontree.Members()
	values := u.Query()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all := jsontree.Items()
		for _, v := range values[name] {
			all.Append(jsontree.Text(strings.ToValidUTF8(v, "\uFFFD")))
		}
		n.Set(strings.ToValidUTF8(name, "\uFFFD"), all)
	}
	return object{&n}
}

var semver = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+]|$)`)

// parseVersion parses a semantic version. It is stricter than [version.ParseSemantic], which
// ignores spaces and a v.
func parseVersion(text string) (*version.Version, error) {
	if !semver.MatchString(text) || strings.TrimSpace(text) != text {
		return nil, fmt.Errorf("%q is not a semantic version such as 1.2.3", text)
	}
	return version.ParseSemantic(text)
}

func compareVersions(a, b *version.Version) int {
	switch {
	case a.LessThan(b):
		return -1
	case b.LessThan(a):
		return 1
	}
	return 0
}

// normalized makes a version such as v1.02 semantic (1.2.0) if the second argument is true.
func normalized(f implementation) implementation {
	return func(args ...ref.Val) ref.Val {
		text := textOf(args[0])
		if args[1] == types.True {
			text = strings.TrimPrefix(text, "v")
			parts := strings.SplitN(text, ".", 3)
			for i, p := range parts {
				for len(p) > 1 && p[0] == '0' && p[1] >= '0' && p[1] <= '9' {
					p = p[1:]
				}
				parts[i] = p
			}
			for len(parts) < 3 {
				parts = append(parts, "0")
			}
			text = strings.Join(parts, ".")
		}
		return f(types.String(text))
	}
}

// find is text.find(pattern): the first match or "".
func find(args ...ref.Val) ref.Val {
	re, err := regexp.Compile(textOf(args[1]))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(re.FindString(textOf(args[0])))
}

// findAll is text.findAll(pattern) and text.findAll(pattern, most).
func findAll(args ...ref.Val) ref.Val {
	re, err := regexp.Compile(textOf(args[1]))
	if err != nil {
		return types.WrapErr(err)
	}
	most := -1
	if len(args) > 2 {
		if n, ok := args[2].(types.Int); ok && n >= 0 {
			most = int(min(n, costLimit))
		}
	}
	return types.NewStringList(types.DefaultTypeAdapter, re.FindAllString(textOf(args[0]), most))
}
