// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestSeparators checks that if a user separates two names by anything other than a comma, the
// warning asks for a comma.
func TestSeparators(t *testing.T) {
	t.Parallel()
	set, err := templates.Compile(templates.File{Path: "a.yaml", Data: []byte(
		misplacedTemplate + "---\n" + strings.ReplaceAll(misplacedTemplate, "agent", "proxy"))})
	if err != nil {
		t.Fatal(err)
	}
	i := inject.New(set)
	for text, want := range map[string]string{
		"agent proxy": "commas", "+agent +proxy": "commas", "+agent; +proxy": "commas", "agent|proxy": "commas",
		"agent+proxy": "commas", "agent -proxy": "commas", "agent\tproxy": "commas", "nope agent": "commas", "agent&proxy": "commas",
		"agnt": `did you mean "agent"?`, "-agnt": `did you mean "agent"?`, "agent.pillion.dev": "", "nope nil": "",
		"agent,proxy": "none", "+agent, +proxy": "none", " agent ,\n-proxy": "none",
	} {
		result, err := i.Inject(inject.Request{
			Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"},
			Object: []byte(`{"metadata":{"annotations":{"pillion.dev/templates":` + strconv.Quote(text) + `}},"spec":{"containers":[{"name":"a"}]}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if want == "none" {
			if len(result.Findings) > 0 {
				t.Errorf("%q: %v", text, result.Findings)
			}
			continue
		}
		if len(result.Findings) != 1 || !strings.Contains(result.Findings[0].Message, want) {
			t.Errorf("%q: %+v, want %q", text, result.Findings, want)
		}
	}
}
