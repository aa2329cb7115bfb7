// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Past is what is known about when the pods of a namespace could first be injected. A zero time
// is unknown.
type Past struct {
	Installed time.Time // when the webhooks were installed
	OptedIn   time.Time // when the namespace got its label
}

// Causes explains why an existing pod is not current. All reports use it, so they name the same
// cause for the same pod.
type Causes struct {
	Past

	Created   time.Time
	Injected  bool           // whether the pod records an injection of any template
	NotCalled string         // why the API server would not call Pillion for the pod today; "" if it would
	Result    *inject.Result // of injecting the pod again
}

// Of returns, in one sentence, why the pod is in a state for a template, or "" if the pod is current or must not have it. By is the
// revision of the template that the pod records, or "".
func (c *Causes) Of(d *inject.Decision, by string, state State) string {
	switch state {
	case Outdated:
		return c.whyOutdated(d, by)
	case Missing:
		return c.whyMissing(d, by)
	case Altered:
		return c.whyAltered(d)
	case Current, NotWanted:
	}
	return ""
}

func (c *Causes) whyOutdated(d *inject.Decision, by string) string {
	why := "it was injected by revision " + problem.Cut(by, 20) + " of the template"
	if by == d.Revision {
		why = "it was injected"
	}
	switch {
	case d.NewPods != "":
		return fmt.Sprintf("%s, but a new pod like it would get %s instead", why, d.NewPods)
	case !d.Code.Wanted():
		return fmt.Sprintf("%s, but a new pod like it would not get it: %s", why, d.Sentence())
	case d.Code.Failed() && d.Code != inject.CodeConflict: // a conflict may be with values of the older revision, which a new pod does not have
		return fmt.Sprintf("%s, but a new pod like it could not get it: %s", why, d.Sentence())
	case c.NotCalled != "":
		return fmt.Sprintf("%s, but the API server would not call Pillion for a new pod: %s", why, c.NotCalled)
	}
	return why
}

func (c *Causes) whyMissing(d *inject.Decision, by string) string {
	switch {
	case d.Code.Failed():
		return d.Sentence()
	case c.NotCalled != "":
		return "the API server would not call Pillion for it: " + c.NotCalled
	case lacksRecordOnly(d):
		return "the pod has all of it but its record, the annotation " + recordOf(d) + ", which something has dropped; find out what creates or changes the pod"
	case by != "":
		return "it was injected according to the pod's annotation, but its containers are missing; find out what removes them"
	case c.Created.IsZero():
	case c.Created.Before(c.Installed):
		return "the pod is older than Pillion's webhook"
	case c.Created.Before(c.OptedIn):
		return "the pod is older than the namespace's label " + inject.LabelInject
	}
	if c.Injected {
		return "the pod was injected without this template, which may be newer than the pod"
	}
	return "Pillion was not called or did not answer when the pod was created, or the template is newer"
}

// recordOf returns the annotation that records the injection of a template.
func recordOf(d *inject.Decision) string {
	return d.Template + "." + templates.Domain + "/" + templates.AnnotationInjected
}

// lacksRecordOnly reports whether a pod has everything of a template but the record of its injection.
func lacksRecordOnly(d *inject.Decision) bool {
	if len(d.Added) != 1 {
		return false
	}
	at, record := d.Added[0].Path, recordOf(d)
	if at == schema.AnnotationPath(record) {
		return true
	}
	var of struct{ Annotations map[string]json.RawMessage }
	value := []byte(d.Added[0].Template)
	switch at {
	case "/metadata/annotations":
		if json.Unmarshal(value, &of.Annotations) != nil {
			return false
		}
	case "/metadata":
		if json.Unmarshal(value, &of) != nil {
			return false
		}
	}
	return len(of.Annotations) == 1 && of.Annotations[record] != nil
}

// whyAltered returns the first difference, and how many more there are.
func (c *Causes) whyAltered(d *inject.Decision) string {
	why, more := "", 0
	for _, f := range c.Result.Check() {
		switch {
		case f.Template != d.Template:
		case why == "":
			why = f.Message
			if f.Path != "" {
				why = schema.Where(f.Path) + ": " + why
			}
		default:
			more++
		}
	}
	switch {
	case why == "":
		return "it differs from the template"
	case more > 0:
		return fmt.Sprintf("%s; and %d more", why, more)
	}
	return why
}

const noWebhook = "no MutatingWebhookConfiguration of Pillion is installed"

// Calls reports whether the API server calls a mutating webhook for a pod of a namespace with
// these labels, and the reason if not.
func Calls(entries []Entry, namespace map[string]string, pod []byte) (called bool, why string) {
	for i := range entries {
		if entries[i].Type != Mutating {
			continue
		}
		w := entries[i].Match(namespace, pod)
		if w.Called {
			return true, ""
		}
		if why == "" {
			why = w.Reason
		}
	}
	if why == "" {
		why = noWebhook
	}
	return false, why
}

// Concerns reports whether the API server calls any webhook that decides about a pod of a
// namespace with these labels.
func Concerns(entries []Entry, namespace map[string]string, pod []byte) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Type != Shadow && e.Match(namespace, pod).Called })
}

// notCalled returns why no mutating webhook is called. It returns "" if one is called, or if all is nil because that is
// unknown.
func notCalled(all []Webhook) string {
	if all == nil || isTypeCalled(all, Mutating) {
		return ""
	}
	if i := slices.IndexFunc(all, func(w Webhook) bool { return w.Type == Mutating }); i >= 0 {
		return all[i].Reason
	}
	return noWebhook
}
