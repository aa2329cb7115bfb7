// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"testing"

	"github.com/pillion-dev/pillion/templates/problem"
)

// TestProblemNames checks that a problem names the template, unless the file or object has its name.
func TestProblemNames(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"all.yaml":                     "all.yaml:3: template agent: spec.x: wrong",
		"folder/agent.yaml":            "folder/agent.yaml:3: spec.x: wrong",
		"sidecartemplate/team-a/agent": "sidecartemplate/team-a/agent:3: spec.x: wrong",
	} {
		p := problem.Problem{File: file, Line: 3, Template: "agent", Path: "spec.x", Message: "wrong"}
		if p.String() != want {
			t.Errorf("%s, want %s", p, want)
		}
	}
}
