// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"regexp/syntax"
	"strings"
)

// stringsMatching returns strings that match a pattern. For unusual patterns they may not match.
func stringsMatching(pattern string) []string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	return []string{stringMatching(re, 0), stringMatching(re, 1), stringMatching(re, 2)}
}

// stringMatching returns a string that matches a pattern. For unusual patterns the string may not
// match. The parameter more is the number of repetitions of parts with *, + or ?, if the pattern
// allows it, and the alternative to use.
func stringMatching(re *syntax.Regexp, more int) string {
	const long = 1000 // nested repetitions double the length with each level
	var b strings.Builder
	times := func(n int) {
		if n == 0 {
			return
		}
		for text := stringMatching(re.Sub[0], more); n > 0 && b.Len()+len(text) <= long; n-- {
			b.WriteString(text)
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		b.WriteRune(pickLetter(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpCapture:
		times(1)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			b.WriteString(stringMatching(sub, more))
		}
	case syntax.OpAlternate:
		return stringMatching(re.Sub[min(more, len(re.Sub)-1)], more)
	case syntax.OpPlus:
		times(max(1, more))
	case syntax.OpQuest:
		times(min(1, more))
	case syntax.OpStar:
		times(more)
	case syntax.OpRepeat:
		times(re.Min)
	}
	return b.String()
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
