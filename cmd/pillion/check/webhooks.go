// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/certs"
)

func (f *Facts) checkRegistered() Check {
	c := Check{Group: ofWebhooks, Name: "registered", Result: OK}
	if f.ChainUnknown != "" {
		return f.withoutChain(c)
	}
	var present []string
	for _, w := range f.Chain.Configurations {
		name := w.Kind + "/" + w.Name
		switch {
		case w.Unread:
			c.Details = append(c.Details, "you are not allowed to read "+name)
			c.Result = NotChecked
		case !w.Found:
			c.Details = append(c.Details, name+" does not exist")
		default:
			present = append(present, name)
		}
	}
	c.Message = strings.Join(present, ", ")
	switch {
	case c.Result == NotChecked:
		c.Message = "some webhook configurations are unknown"
		c.Hint, c.Command = "Ask for the verb get on these resources:", f.Commands.Kubectl+" auth can-i get mutatingwebhookconfigurations.admissionregistration.k8s.io"
	case len(c.Details) > 0:
		c.Result, c.Message = Failed, "API servers do not call Pillion for everything"
		c.Hint, c.Command = applyAgain, f.Commands.Kubectl+" "+applyCommand
	}
	return c
}

// withoutChain returns a check that needs the webhook configurations and what belongs to them.
func (f *Facts) withoutChain(c Check) Check {
	c.Result, c.Message = NotChecked, f.ChainUnknown
	c.Hint, c.Command = "Read the webhook configurations yourself:", f.Commands.Kubectl+" get mutatingwebhookconfigurations,validatingwebhookconfigurations"
	return c
}

func (f *Facts) checkReachable() Check {
	c := Check{Group: ofWebhooks, Name: "reachable", Result: OK}
	if f.ChainUnknown != "" {
		return f.withoutChain(c)
	}
	c.Hint, c.Command = "See the pods:", f.Commands.Kubectl+" -n "+f.Namespace+" get pods -o wide"
	if f.Chain.Deserted != "" {
		c.Result, c.Message = Failed, "the Service "+f.Chain.Deserted+" has no ready endpoint, so no pod of Pillion answers API servers"
		return c
	}
	answered := 0
	for _, e := range f.Chain.Served {
		if e.Err != nil {
			c.Details = append(c.Details, e.Address+": "+e.Err.Error())
			continue
		}
		answered++
	}
	switch all := len(f.Chain.Served); {
	case all == 0:
		c.Result, c.Message = NotChecked, "the endpoints of the Service are unknown"
		c.Details = f.Chain.Unread
	case answered == 0 && f.parseDenial().Unreached:
		c.Result, c.Message = Failed, fmt.Sprintf("no endpoint answers, neither to the API server, as %s shows, nor from here", cmp.Or(f.Probe.Of, "the dry-run pod"))
	case answered == 0:
		c.Result, c.Message = NotChecked, "no endpoint can be reached from here. If the dry-run pod is injected, API servers reach them"
		c.Hint, c.Command = "Name an endpoint that you can reach, for example of a port forward:", f.Commands.Pillion("check --endpoint HOST:PORT")
	case answered < all:
		c.Result, c.Message = Warning, fmt.Sprintf("%d of %d endpoints answer", answered, all)
	default:
		c.Message, c.Hint, c.Command = formatCount(all, "endpoint")+" accept connections", "", ""
		if all == 1 {
			c.Message = "1 endpoint accepts connections"
		}
	}
	return c
}

// checkCertificate has the problems that pillion certs prints, apart from those of the two checks above.
func (f *Facts) checkCertificate() Check {
	c := Check{Group: ofWebhooks, Name: "certificate", Result: OK}
	if f.ChainUnknown != "" {
		return f.withoutChain(c)
	}
	c.Hint, c.Command = "To see the whole chain:", f.Commands.Pillion("certs")
	chain := f.Chain
	chain.Deserted = ""
	chain.Configurations = slices.DeleteFunc(slices.Clone(chain.Configurations), func(w certs.WebhookConfiguration) bool { return !w.Found && !w.Unread })
	report := chain.Report()
	problems := withoutItems(report.Problems, report.Unseen)
	switch first := firstToExpire(report); {
	case len(problems) > 0:
		c.Result, c.Details = Failed, problems
		c.Message = "pillion certs reports " + formatCount(len(problems), "problem")
	case len(report.Unseen) > 0:
		c.Result, c.Message, c.Details = NotChecked, "not all of it can be read", slices.Concat(report.Unseen, f.Chain.Unread)
	case first == nil:
		c.Result, c.Message, c.Details = NotChecked, "no certificate could be read", report.Notes
	case first.Overdue(f.Chain.Now):
		c.Result, c.Message = Warning, "it expires "+first.Expires.Format(time.RFC3339)+", and its renewal is overdue"
	default:
		c.Message = "every caBundle verifies it, and it expires " + first.Expires.Format(time.RFC3339)
		c.Hint, c.Command = "", ""
	}
	return c
}

// firstToExpire returns the certificate that expires first, or nil.
func firstToExpire(r *certs.ChainReport) (first *certs.X509Report) {
	for _, s := range r.Served {
		if s.Certificate != nil && (first == nil || s.Certificate.Expires.Before(first.Expires)) {
			first = s.Certificate
		}
	}
	return first
}
