// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode"
)

// Quote quotes an argument for a shell, if that is necessary.
func Quote(argument string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:@%+=,", r)
	}
	if argument != "" && !strings.ContainsFunc(argument, func(r rune) bool { return !plain(r) }) {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}

// QuoteItem quotes an argument of a flag that takes several, separated by commas.
func QuoteItem(argument string) string {
	if strings.ContainsAny(argument, ",\"\n") {
		argument = `"` + strings.ReplaceAll(argument, `"`, `""`) + `"`
	}
	return Quote(argument)
}
