// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"regexp/syntax"
	"strings"
)

// stringMatching returns a short string that matches a pattern, or "". For unusual patterns the string may not match.
func stringMatching(pattern string) string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	return shortestMatch(re)
}

func shortestMatch(re *syntax.Regexp) string {
	var b strings.Builder
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		return string(pickLetter(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "a"
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		return shortestMatch(re.Sub[0])
	case syntax.OpRepeat:
		return strings.Repeat(shortestMatch(re.Sub[0]), re.Min)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			b.WriteString(shortestMatch(sub))
		}
	}
	return b.String() // "" also matches *, ? and the edges of a string
}

// pickLetter returns a, 0 or A if the character class has it, else its first character.
func pickLetter(class []rune) rune {
	for _, want := range "a0A" {
		for i := 0; i+1 < len(class); i += 2 {
			if class[i] <= want && want <= class[i+1] {
				return want
			}
		}
	}
	if len(class) == 0 {
		return 'a'
	}
	return class[0]
}
