// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
)

// shadowed says whether the pod is to be made in a namespace where nothing is
// injected, and what would be is told.
func (s *Subject) shadowed() bool {
	return !s.Object.Live && !s.Request.OptedIn && s.Request.Namespace.Labels[inject.LabelInject] == inject.Shadow && !called(s.Webhooks, Mutating)
}

// shadowed explains what would become of the pod, and that it does not.
func shadowed(injector *inject.Injector, s Subject) (*Report, error) {
	would := s
	would.Webhooks, would.Answered, would.Request.OptedIn = nil, nil, true
	r, err := New(injector, would)
	if err != nil {
		return nil, err
	}
	if r.Webhooks, r.Answered = s.Webhooks, s.Answered; s.Webhooks != nil {
		r.Called = new(false)
	}
	why := fmt.Sprintf("the namespace %s has the label %s: %s", s.Request.Namespace.Name, inject.LabelInject, inject.Shadow)
	for i := range r.Templates {
		t := &r.Templates[i]
		if t.Code == inject.CodeInjected {
			t.Code, t.Message = inject.CodeNotOptedIn, fmt.Sprintf("%s, but %s; with %s it would be injected", t.Message, why, inject.Enabled)
		}
		t.Passed = slices.DeleteFunc(t.Passed, func(p inject.Step) bool { return p.Code == inject.CodeNotOptedIn })
	}
	r.Patch, r.Final = nil, Final{Verdict: "allowed", Findings: r.Final.Findings}
	r.Summary = fmt.Sprintf("Nothing is injected, for %s. With %s %s", why, inject.Enabled, strings.ToLower(r.Summary[:1])+r.Summary[1:])
	return r, nil
}
