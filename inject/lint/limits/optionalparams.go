// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
)

// withOptional tries the template on a pod that sets all optional parameters, because the sample pods
// set none of them. It returns why that pod does not get the template.
func withOptional(t *templates.Template, pod Subject) []string {
	values, sets := map[string]string{}, []string{}
	for i := range t.Spec.Params {
		p := &t.Spec.Params[i]
		if value := sample.Value(t, p); p.Optional && value != "" {
			values[t.Name+"."+p.Name] = value
			sets = append(sets, p.Name+"="+value)
		}
	}
	if len(sets) == 0 {
		return nil
	}
	asked, _ := requestTemplates(pod, values, t)
	d := injectInto(asked.Situation, t).Decisions[0]
	if d.Code != inject.CodeConflict && d.Code != inject.CodeRenderFailed && d.Code != inject.CodeInvalidParameter {
		return nil
	}
	return []string{fmt.Sprintf("a pod that sets its optional parameters (%s) does not get it: %s", strings.Join(sets, ", "), d.Sentence())}
}
