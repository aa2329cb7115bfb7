// SPDX-License-Identifier: Apache-2.0

package problem

// IsTypo reports whether a name is almost certainly a typing error for another one: it has other
// separators or capital letters, or one letter is missing, added or swapped with its neighbor. In a
// long name, one letter may also be another one. In a short one, that is often another name, such as
// uid and gid. The time is in proportion to the length.
func IsTypo(name, want string) bool {
	const short, long = 6, 10
	switch {
	case name == want:
		return false
	case sameLetters(name, want):
		return true
	case len(want) < short || len(name) > len(want)+1 || len(want) > len(name)+1:
		return false
	}
	isLong := len(want) >= long
	for len(name) > 0 && len(want) > 0 && name[0] == want[0] {
		name, want = name[1:], want[1:]
	}
	for len(name) > 0 && len(want) > 0 && name[len(name)-1] == want[len(want)-1] {
		name, want = name[:len(name)-1], want[:len(want)-1]
	}
	switch len(name) + len(want) {
	case 1:
		return true
	case 2:
		return isLong
	case 4:
		return len(name) == 2 && name[0] == want[1] && name[1] == want[0]
	}
	return false
}

// sameLetters reports whether two names differ only in separators and capital letters.
func sameLetters(a, b string) bool {
	for {
		a, b = trimSeparators(a), trimSeparators(b)
		if a == "" || b == "" {
			return a == b
		}
		if lowerByte(a[0]) != lowerByte(b[0]) {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

func trimSeparators(name string) string {
	for name != "" && (name[0] == '-' || name[0] == '_' || name[0] == '.') {
		name = name[1:]
	}
	return name
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c - 'A' + 'a'
	}
	return c
}
