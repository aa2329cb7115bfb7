// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"regexp"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/params"
)

// Situations has one report for all objects with the same result. Hundreds of workloads of a
// namespace are usually in a few situations.
type Situations struct {
	Reports []*Report

	byKey map[string]*Report
}

// Add adds a report, or adds its object to an existing report with the same content.
func (s *Situations) Add(r *Report) error {
	key, err := r.situationKey()
	if err != nil {
		return err
	}
	if same := s.byKey[key]; same != nil {
		same.Same = append(same.Same, r.Object)
		same.Running.mergeRunning(r.Running)
		return nil
	}
	if s.byKey == nil {
		s.byKey = map[string]*Report{}
	}
	s.byKey[key] = r
	s.Reports = append(s.Reports, r)
	return nil
}

// situationKey returns the content of a report without the names of the object and its namespace,
// and without paths in the pod, because pods have different containers.
func (r *Report) situationKey() (string, error) {
	type decision struct {
		Template, InjectedBy, Message string
		Code                          inject.Code
		State                         State
		Params                        []params.Value
		Kept                          []inject.Kept
		Altered                       []inject.Difference
		Obstacles, Notes              []string
	}
	type finding struct {
		Code              inject.Code
		Template, Message string
	}
	all := struct {
		Live                               bool
		Called, Answered                   *bool
		Summary, Verdict, Failing          string
		Gone                               map[string]string
		Decisions                          []decision
		Findings                           []finding
		Misplaced, Misfits, Original, Note []string
		Effects, Running, Shows            []string
	}{r.Object.Live, r.Called, r.Answered, r.Summary, r.Final.Verdict, r.Failing, r.Gone, nil, nil, r.Misplaced, r.Misfits, r.Original, r.Notes, r.Effects, r.Running.situationKey(), r.Shows}
	for i := range r.Templates {
		t := &r.Templates[i]
		d := decision{t.Template, t.InjectedBy, t.Message, t.Code, t.State, t.Params, t.Kept, t.Altered, nil, t.Notes}
		for _, o := range t.Obstacles {
			d.Obstacles = append(d.Obstacles, o.Message)
		}
		all.Decisions = append(all.Decisions, d)
	}
	for _, f := range append(append([]inject.Finding{}, r.Final.Findings...), r.Mistakes...) {
		all.Findings = append(all.Findings, finding{f.Code, f.Template, f.Message})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	key := wordPattern(r.Object.Kind+"/"+r.Object.Name).ReplaceAllLiteral(text, []byte("OBJECT"))
	return string(wordPattern(r.Object.Namespace).ReplaceAllLiteral(key, []byte("NAMESPACE"))), nil
}

// wordPattern matches a name that is not part of a longer name.
func wordPattern(text string) *regexp.Regexp {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(text) + `\b`)
}

// otherNames returns the names of the other objects of a situation, as many as there is room for.
func (r *Report) otherNames() string {
	var names []string
	for _, o := range r.Same {
		name := o.Kind + "/" + o.Name
		if o.Namespace != r.Object.Namespace {
			name += " (" + o.Namespace + ")"
		}
		names = append(names, name)
	}
	return joinNames(names, 160)
}
