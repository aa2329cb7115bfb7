// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

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

func quantityFunctions() []cel.EnvOption {
	q := quantityType.Type
	one, two, withInt := takesTypes(q), takesTypes(q, q), takesTypes(q, cel.IntType)
	compare := func(a, b resource.Quantity) int { return a.Cmp(b) }
	return []cel.EnvOption{
		declareFunction("quantity", "string_to_quantity", takesTypes(cel.StringType), q, parseFunc(quantityType, values.ParseQuantity)),
		declareFunction("isQuantity", "is_quantity_string", takesTypes(cel.StringType), cel.BoolType, canParseFunc(values.ParseQuantity)),
		declareFunction("string", "quantity_to_string", one, cel.StringType, unaryFunc(func(a resource.Quantity) ref.Val { return types.String(a.String()) })),
		declareMethod("sign", "quantity_sign", one, cel.IntType, unaryFunc(func(a resource.Quantity) ref.Val { return types.Int(a.Sign()) })),
		declareMethod("isInteger", "quantity_is_integer", one, cel.BoolType, unaryFunc(func(a resource.Quantity) ref.Val { _, ok := a.AsInt64(); return types.Bool(ok) })),
		declareMethod("asInteger", "quantity_get_int", one, cel.IntType, unaryFunc(asInteger)),
		declareMethod("asApproximateFloat", "quantity_get_float", one, cel.DoubleType, unaryFunc(func(a resource.Quantity) ref.Val { return types.Double(a.AsApproximateFloat64()) })),
		declareMethod("add", "quantity_add", two, q, addFunc((*resource.Quantity).Add)),
		declareMethod("add", "quantity_add_int", withInt, q, addFunc((*resource.Quantity).Add)),
		declareMethod("sub", "quantity_sub", two, q, addFunc((*resource.Quantity).Sub)),
		declareMethod("sub", "quantity_sub_int", withInt, q, addFunc((*resource.Quantity).Sub)),
		declareMethod("compareTo", "quantity_compare_to", two, cel.IntType, compareFunc(compare, func(c int) ref.Val { return types.Int(c) })),
		declareMethod("isLessThan", "quantity_is_less_than", two, cel.BoolType, compareFunc(compare, func(c int) ref.Val { return types.Bool(c < 0) })),
		declareMethod("isGreaterThan", "quantity_is_greater_than", two, cel.BoolType, compareFunc(compare, func(c int) ref.Val { return types.Bool(c > 0) })),
	}
}

func urlFunctions() []cel.EnvOption {
	one := takesTypes(urlType.Type)
	part := func(f func(*url.URL) string) implementation {
		return unaryFunc(func(u *url.URL) ref.Val { return types.String(f(u)) })
	}
	return []cel.EnvOption{
		declareFunction("url", "string_to_url", takesTypes(cel.StringType), urlType.Type, parseFunc(urlType, parseURL)),
		declareFunction("isURL", "is_url_string", takesTypes(cel.StringType), cel.BoolType, canParseFunc(parseURL)),
		declareMethod("getScheme", "url_get_scheme", one, cel.StringType, part(func(u *url.URL) string { return u.Scheme })),
		declareMethod("getHost", "url_get_host", one, cel.StringType, part(func(u *url.URL) string { return u.Host })),
		declareMethod("getHostname", "url_get_hostname", one, cel.StringType, part((*url.URL).Hostname)),
		declareMethod("getPort", "url_get_port", one, cel.StringType, part((*url.URL).Port)),
		declareMethod("getEscapedPath", "url_get_escaped_path", one, cel.StringType, part((*url.URL).EscapedPath)),
		declareMethod("getQuery", "url_get_query", one, cel.MapType(cel.StringType, cel.ListType(cel.StringType)), unaryFunc(queryMap)),
	}
}

func semverFunctions() []cel.EnvOption {
	v := semverType.Type
	one, two, loose := takesTypes(v), takesTypes(v, v), takesTypes(cel.StringType, cel.BoolType)
	number := func(f func(*version.Version) uint) implementation {
		return unaryFunc(func(v *version.Version) ref.Val { return types.Uint(f(v)).ConvertToType(types.IntType) })
	}
	return []cel.EnvOption{
		declareFunction("semver", "string_to_semver", takesTypes(cel.StringType), v, parseFunc(semverType, parseVersion)),
		declareFunction("semver", "string_bool_to_semver", loose, v, normalizeFunc(parseFunc(semverType, parseVersion))),
		declareFunction("isSemver", "is_semver_string", takesTypes(cel.StringType), cel.BoolType, canParseFunc(parseVersion)),
		declareFunction("isSemver", "is_semver_string_bool", loose, cel.BoolType, normalizeFunc(canParseFunc(parseVersion))),
		declareMethod("major", "semver_major", one, cel.IntType, number((*version.Version).Major)),
		declareMethod("minor", "semver_minor", one, cel.IntType, number((*version.Version).Minor)),
		declareMethod("patch", "semver_patch", one, cel.IntType, number((*version.Version).Patch)),
		declareMethod("compareTo", "semver_compare_to", two, cel.IntType, compareFunc(compareVersions, func(c int) ref.Val { return types.Int(c) })),
		declareMethod("isLessThan", "semver_is_less_than", two, cel.BoolType, compareFunc(compareVersions, func(c int) ref.Val { return types.Bool(c < 0) })),
		declareMethod("isGreaterThan", "semver_is_greater_than", two, cel.BoolType, compareFunc(compareVersions, func(c int) ref.Val { return types.Bool(c > 0) })),
	}
}

// parseFunc is a function that makes a value from a string.
func parseFunc[T any](typ *opaqueType[T], parse func(string) (T, error)) implementation {
	return func(args ...ref.Val) ref.Val {
		text := values.TextOf(args[0])
		v, err := parse(text)
		if err != nil {
			return types.WrapErr(err)
		}
		return opaque[T]{typ, v, text}
	}
}

// canParseFunc is a function that reports whether parsed would return a value.
func canParseFunc[T any](parse func(string) (T, error)) implementation {
	return func(args ...ref.Val) ref.Val {
		_, err := parse(values.TextOf(args[0]))
		return types.Bool(err == nil)
	}
}

// unaryFunc is a function of an opaque value.
func unaryFunc[T any](f func(T) ref.Val) implementation {
	return func(args ...ref.Val) ref.Val {
		if v, ok := args[0].(opaque[T]); ok {
			return f(v.value)
		}
		return types.MaybeNoSuchOverloadErr(args[0])
	}
}

// compareFunc is a function of two opaque values.
func compareFunc[T any](compare func(a, b T) int, result func(int) ref.Val) implementation {
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

// addFunc adds a quantity or an integer to a quantity, or subtracts it.
func addFunc(add func(to *resource.Quantity, q resource.Quantity)) implementation {
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

// queryMap returns the parameters of a URL, in the order of their names.
func queryMap(u *url.URL) ref.Val {
	all := map[string]ref.Val{}
	for name, texts := range u.Query() {
		for i := range texts {
			texts[i] = strings.ToValidUTF8(texts[i], "\uFFFD")
		}
		all[strings.ToValidUTF8(name, "\uFFFD")] = types.NewStringList(types.DefaultTypeAdapter, texts)
	}
	return values.OfMap(all)
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

// normalizeFunc makes a version such as v1.02 semantic (1.2.0) if the second argument is true.
func normalizeFunc(f implementation) implementation {
	return func(args ...ref.Val) ref.Val {
		text := values.TextOf(args[0])
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

func findFunctions() []cel.EnvOption {
	return []cel.EnvOption{
		declareMethod("find", "string_find_string", takesTypes(cel.StringType, cel.StringType), cel.StringType, findFirst),
		declareMethod("findAll", "string_find_all_string", takesTypes(cel.StringType, cel.StringType), cel.ListType(cel.StringType), findAll),
		declareMethod("findAll", "string_find_all_string_int", takesTypes(cel.StringType, cel.StringType, cel.IntType), cel.ListType(cel.StringType), findAll),
	}
}

// findFirst is text.find(pattern): the first match or "".
func findFirst(args ...ref.Val) ref.Val {
	re, err := regexp.Compile(values.TextOf(args[1]))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(re.FindString(values.TextOf(args[0])))
}

// findAll is text.findAll(pattern) and text.findAll(pattern, most).
func findAll(args ...ref.Val) ref.Val {
	re, err := regexp.Compile(values.TextOf(args[1]))
	if err != nil {
		return types.WrapErr(err)
	}
	text, most := values.TextOf(args[0]), -1
	if len(args) > 2 {
		if n, ok := args[2].(types.Int); ok && n >= 0 {
			most = int(min(int64(n), int64(len(text))+1)) // there are no more matches
		}
	}
	return types.NewStringList(types.DefaultTypeAdapter, re.FindAllString(text, most))
}
