// SPDX-License-Identifier: Apache-2.0

package values

import "regexp/syntax"

// MaxPatternSteps is the maximum size of a pattern, both as a string and compiled. Each letter that it is
// matched against may take as many steps.
const MaxPatternSteps = 1_000

// PatternSteps returns the number of steps that a pattern takes for each letter. It does not compile a
// long pattern, and estimates the number. It returns 0 for an invalid pattern, which other code
// reports.
func PatternSteps(pattern string) int {
	if len(pattern) > MaxPatternSteps { // compiled, it may be a thousand times as large
		return len(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(prog.Inst)
}
