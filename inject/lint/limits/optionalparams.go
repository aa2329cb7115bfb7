// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// withOptional tries the template on a pod that sets all optional parameters, because the sample pods
// set none of them. It returns why that pod does not get the template.
func withOptional(t *templates.Template, pod Subject) []string {
	var optional []*v1alpha1.Param
	for i := range t.Spec.Params {
		if p := &t.Spec.Params[i]; p.Optional && sample.Value(t, p) != "" {
			optional = append(optional, p)
		}
	}
	if len(optional) == 0 {
		return nil
	}
	values, sets := chooseSamples(pod, nil, t, optional), []string{}
	for _, p := range optional {
		sets = append(sets, p.Name+"="+values[paramKey(t, p)])
	}
	asked, _ := requestTemplates(pod, values, t)
	d := injectInto(asked.Situation, t).Decisions[0]
	if d.Code != inject.CodeConflict && d.Code != inject.CodeRenderFailed && d.Code != inject.CodeInvalidParameter {
		return nil
	}
	return []string{fmt.Sprintf("a pod that sets its optional parameters (%s) does not get it: %s", strings.Join(sets, ", "), d.Sentence())}
}
