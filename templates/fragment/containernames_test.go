// SPDX-License-Identifier: Apache-2.0

package fragment

import "testing"

// TestNames checks the names of generated containers: their form, and which names are of that form.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a": "a", "a-${m}": "a-*", "${m}-b": "*-b", "a-${m}-b": "a-*-b", "a${m.replace('}', '${')}-${n}b": "a*b",
		"${m}": "*", "${m}-x-${n}": "*", "A-${m}": "", "-a${m}": "", "${m}-": "",
	} {
		if got, err := NamePattern(name); err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s %v, want %s", name, got, err, want)
		}
	}
	for _, c := range []struct {
		a, b    string
		overlap bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a-*", "a-b", true},
		{"a-*", "a", false},
		{"a-*", "a-", true},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"*-b", "a-b", true},
		{"a-*", "a-*", true},
		{"a-*", "ab-*", false},
		{"a-*", "a-b-*", true},
		{"a-*", "*-b", true},
		{"*-a", "*-b", false},
		{"a-*-x", "a-b-*-y", false},
		{"a-*-x", "a-b-*", true},
	} {
		if Overlap(c.a, c.b) != c.overlap || Overlap(c.b, c.a) != c.overlap {
			t.Errorf("%s and %s: %v", c.a, c.b, !c.overlap)
		}
	}
}
