// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/problem"
)

// file is the name of the templates of the page as a file.
const file = "templates"

// lintTemplates tries the templates on sample pods, as pillion lint does. The hints are those of the webhook that checks
// templates in a cluster.
func (out *Output) lintTemplates(e *Evaluator) {
	trials := e.fit.Try(e.set, nil)
	for i := range trials {
		t := &trials[i]
		line, _ := strconv.Atoi(strings.TrimPrefix(t.Place, file+":"))
		at := func(sentence string) Problem {
			return Problem{Line: max(line, 1), Path: t.Template, Message: problem.OneLine(sentence)}
		}
		for _, sentence := range t.Problems() {
			out.Problems = append(out.Problems, at(sentence))
		}
		for _, sentence := range t.Warnings() {
			out.Hints = append(out.Hints, at(sentence))
		}
	}
}
