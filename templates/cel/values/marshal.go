// SPDX-License-Identifier: Apache-2.0

package values

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// AppendJSON appends the canonical JSON of a value: without spaces, and with the keys of maps sorted. It returns an error if the
// JSON is longer than [MaxOutput], or if the value has no form in JSON.
func AppendJSON(to []byte, v ref.Val) (text []byte, err error) {
	switch v := v.(type) {
	case types.String:
		to = appendText(to, string(v))
	case types.Bytes:
		to = appendText(to, base64.StdEncoding.EncodeToString(v))
	case types.Null:
		to = append(to, "null"...)
	case types.Bool, types.Int, types.Uint:
		to = fmt.Append(to, v.Value())
	case types.Double:
		if math.IsInf(float64(v), 0) || math.IsNaN(float64(v)) {
			return nil, fmt.Errorf("%v is no number in JSON", float64(v))
		}
		n := jsontree.Float(float64(v))
		to = n.AppendTo(to)
	case types.Timestamp, types.Duration:
		to = appendText(to, TextOf(v.ConvertToType(types.StringType)))
	case traits.Mapper:
		return appendMap(to, v)
	case traits.Lister:
		to = append(to, '[')
		for it := v.Iterator(); it.HasNext() == types.True; {
			if to, err = AppendJSON(to, it.Next()); err != nil {
				return nil, err
			}
			to = append(to, ',')
		}
		to = append(bytes.TrimSuffix(to, []byte(",")), ']')
	case *types.Err:
		return nil, v
	default:
		return nil, fmt.Errorf("a %s has no form in JSON", v.Type().TypeName())
	}
	if len(to) > MaxOutput {
		return nil, fmt.Errorf("it makes a string of more than %d bytes", MaxOutput)
	}
	return to, nil
}

func appendMap(to []byte, m traits.Mapper) (text []byte, err error) {
	values := map[string]ref.Val{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.ConvertToType(types.StringType).(types.String)
		if !ok {
			return nil, errors.New("a key has no form in JSON")
		}
		values[string(name)] = m.Get(key)
	}
	to = append(to, '{')
	for i, name := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendText(to, name), ':')
		if to, err = AppendJSON(to, values[name]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendText escapes only what JSON requires.
func appendText(to []byte, text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(strings.ToValidUTF8(text, "\uFFFD")) != nil {
		return to // a string never fails
	}
	return append(to, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
