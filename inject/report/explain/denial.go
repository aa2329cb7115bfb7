// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// Denial explains why the API server did not create a pod.
type Denial struct {
	// Pillions reports whether Pillion is the cause: it denied the pod, or the API server could not ask it.
	Pillions bool
	// Unreached reports whether the API server got no answer of any server of Pillion.
	Unreached bool
	Sentence  string // the cause, without a full stop
	// Hint is what to do next, and Command is how.
	Hint, Command string
}

// Help has what is needed for the commands that a Denial suggests.
type Help struct {
	Kubectl string                      // the beginning of a kubectl command for the same cluster
	Pillion func(command string) string // a command of this program, for example for "certs"
	System  string                      // Pillion's namespace
	// Namespace is the pod's.
	Namespace string
	// Foreign is set if the user may not see Pillion's own namespace.
	Foreign bool
}

func (h *Help) pillionCommand(command string) string {
	if h.Pillion == nil {
		return "pillion " + command
	}
	return h.Pillion(command)
}

var (
	uncalled = regexp.MustCompile(`(?s)failed calling webhook "([^"]+)": (?:failed to call webhook: )?(?:Post "[^"]*": )?(.*)`)
	denied   = regexp.MustCompile(`(?s)admission webhook "([^"]+)" denied the request(?:: (.*)| without explanation)`)
	policy   = regexp.MustCompile(`(?s)ValidatingAdmissionPolicy '([a-z0-9.-]+)' with binding '[^']+' denied request: (.*)`)
)

// ParseDenial finds the cause in the message with which the API server denied a pod. It knows the messages about webhooks
// (pkg/admission/plugin/webhook/errors in k8s.io/apiserver) and policies, and those of the plugins ResourceQuota, LimitRanger and
// PodSecurity. Known is false for other messages.
func ParseDenial(message string, help Help) (d Denial, known bool) {
	message = strings.TrimSpace(message)
	if m := uncalled.FindStringSubmatch(message); m != nil {
		if !isPillions(m[1]) {
			return newForeignDenial(fmt.Sprintf("the API server cannot call the webhook %s, which is not Pillion's: %s", m[1], m[2]), help), true
		}
		return explainCall(m[1], m[2], help), true
	}
	if m := denied.FindStringSubmatch(message); m != nil {
		if isPillions(m[1]) {
			return Denial{
				Pillions: true, Sentence: strings.TrimSuffix(fmt.Sprintf("the webhook %s denies it: %s", m[1], m[2]), ": "),
				Hint: "See what Pillion decides about pods there:", Command: help.pillionCommand("explain -n " + help.Namespace),
			}, true
		}
		return newForeignDenial(strings.TrimSuffix(fmt.Sprintf("the webhook %s, which is not Pillion's, denies it: %s", m[1], m[2]), ": "), help), true
	}
	if m := policy.FindStringSubmatch(message); m != nil {
		return Denial{
			Sentence: fmt.Sprintf("the ValidatingAdmissionPolicy %s denies it: %s", m[1], m[2]),
			Hint:     "Read the policy:", Command: help.Kubectl + " get validatingadmissionpolicy " + m[1] + " -o yaml",
		}, true
	}
	d = Denial{Sentence: "the API server denies it, but not because of Pillion: " + message, Hint: "See the limits of the namespace:", Command: help.Kubectl + " describe namespace " + help.Namespace}
	switch {
	case strings.Contains(message, "exceeded quota"), strings.Contains(message, "failed quota"):
		d.Hint, d.Command = "See the quota, and ask for a larger one or free some of it:", help.Kubectl+" describe resourcequota -n "+help.Namespace
	case strings.Contains(message, "violates PodSecurity"):
		d.Hint, d.Command = "See the level of Pod Security that the namespace enforces:", help.Kubectl+" get namespace "+help.Namespace+" --show-labels"
	case strings.Contains(message, "because it is being terminated"):
		d.Hint, d.Command = "The namespace is being deleted. Use another one:", help.Kubectl+" get namespaces"
	default:
		return d, false
	}
	return d, true
}

// newForeignDenial returns a Denial because of a webhook that is not Pillion's.
func newForeignDenial(sentence string, help Help) Denial {
	return Denial{Sentence: sentence, Hint: "Find its configuration, and ask its owner:", Command: help.Kubectl + " get mutatingwebhookconfigurations,validatingwebhookconfigurations"}
}

func isPillions(webhook string) bool { return strings.HasSuffix(webhook, "."+templates.Domain) }

// explainCall explains why the API server cannot call a webhook of Pillion.
func explainCall(webhook, reason string, help Help) Denial {
	r := Denial{Pillions: true}
	pods := fmt.Sprintf("%s -n %s get deployment,pods -l app.kubernetes.io/name=pillion", help.Kubectl, help.System)
	has := func(texts ...string) bool {
		for _, text := range texts {
			if strings.Contains(reason, text) {
				return true
			}
		}
		return false
	}
	switch {
	case has("no endpoints available"):
		r.Unreached = true
		r.Sentence = "no pod of Pillion is ready, so the API server cannot ask it about the pod"
		r.Hint, r.Command = "See whether its Deployment has replicas, and why they are not ready:", pods
	case has(`service "`) && has("not found"):
		r.Sentence = "Pillion's Service does not exist, so the API server cannot ask it about the pod"
		r.Hint, r.Command = "Install Pillion again. First check whether you can:", help.pillionCommand("check --pre")
	case has("x509:", "tls:", "certificate"):
		r.Sentence = "the API server does not trust the certificate of Pillion: " + reason
		r.Hint, r.Command = "See the whole chain, and where it breaks:", help.pillionCommand("certs")
	case has("context deadline exceeded", "Client.Timeout", "request canceled", "i/o timeout"):
		return NewTimeout(reason, help)
	case has("connect:", "connection reset", "EOF", "proxy"):
		r.Unreached = true
		r.Sentence = "the API server cannot connect to Pillion: " + reason
		r.Hint, r.Command = "See whether its pods run. If they are ready, something between the API server and port 8443 of the pods blocks the connection:", pods
	default:
		r.Sentence = fmt.Sprintf("the API server cannot call the webhook %s of Pillion: %s", webhook, reason)
		r.Hint, r.Command = "Check the whole installation:", help.pillionCommand("check")
	}
	return r.forUser(help)
}

// NewTimeout returns a Denial because Pillion does not answer the API server in time. Reason shows that.
func NewTimeout(reason string, help Help) Denial {
	d := Denial{
		Pillions: true, Unreached: true, Sentence: "Pillion does not answer the API server in time: " + reason,
		Hint:    "See whether its pods run, and read their log. A firewall or NetworkPolicy between the API server and port 8443 of the pods has the same effect:",
		Command: fmt.Sprintf("%s -n %s logs -l app.kubernetes.io/name=pillion --prefix --tail=50", help.Kubectl, help.System),
	}
	return d.forUser(help)
}

// forUser adds whom to ask, if the user may not run the command.
func (d Denial) forUser(help Help) Denial {
	if help.Foreign {
		d.Hint = "Ask an administrator of Pillion. " + d.Hint
	}
	return d
}
