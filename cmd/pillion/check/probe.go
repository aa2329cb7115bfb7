// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
)

// checkProbe checks what the API server made of a pod that went through everything.
func (f *Facts) checkProbe() Check {
	p := &f.Probe
	c := Check{Group: ofPods, Name: "dry-run pod", Result: OK}
	c.Hint, c.Command = "See what Pillion decides about pods there:", f.Commands.Pillion("status "+p.Namespace)
	lacks := withoutItems(p.Expected, p.Got)
	switch {
	case p.Missing:
		c.Result, c.Message = Failed, "there is no namespace "+p.Namespace
		c.Hint, c.Command = "Name one of these:", f.Commands.Kubectl+" get namespaces"
	case p.Namespace == "":
		c.Result, c.Message = NotChecked, "no namespace opted in, so there is nowhere to send it"
		c.Hint, c.Command = "Opt in a namespace and run this command again:", f.Commands.Kubectl+" label namespace NAMESPACE "+inject.LabelInject+"="+inject.Enabled
		if f.Namespaces.Unknown != "" {
			c.Message = "the namespaces that opted in are unknown"
			c.Hint, c.Command = "Name one:", f.Commands.Pillion("check --namespace NAMESPACE")
		}
	case p.Unknown != "":
		c.Result, c.Message = NotChecked, p.Unknown
		c.Hint, c.Command = "Use another namespace that opted in:", f.Commands.Pillion("check --namespace NAMESPACE")
		if p.NoRight {
			c.Hint = "Ask an administrator to run this command, or use a namespace in which you may create pods:"
		}
	case p.Denied != "", p.Timeout != "":
		why := f.parseDenial()
		c.Result, c.Message, c.Hint, c.Command = NotChecked, fmt.Sprintf("in the namespace %s, %s", p.Namespace, why.Sentence), why.Hint, why.Command
		if p.Of != "" {
			c.Message = fmt.Sprintf("you may not send one, but in the namespace %s, %s cannot create its pods: %s", p.Namespace, p.Of, why.Sentence)
		}
		if why.Pillions {
			c.Result = Failed
		}
	case len(p.Expected) == 0 && f.Templates.Unknown != "":
		got := "no container"
		if len(p.Containers) > 0 {
			got = "the containers " + strings.Join(p.Containers, ", ")
		}
		c.Result, c.Message = NotChecked, fmt.Sprintf("in the namespace %s, it got %s; what it should get is unknown, because the templates are", p.Namespace, got)
		c.Hint, c.Command = "Ask an administrator to run this command:", f.Commands.Pillion("check --namespace "+p.Namespace)
	case len(p.Expected) == 0:
		c.Result, c.Message = NotChecked, fmt.Sprintf("no template injects a simple pod in the namespace %s, for example because all of them need parameters", p.Namespace)
		c.Hint, c.Command = "Ask about a pod of your own:", f.Commands.Pillion("explain -f POD.yaml -n "+p.Namespace)
	case len(lacks) > 0:
		c.Result, c.Message = Failed, fmt.Sprintf("in the namespace %s, it lacks %s", p.Namespace, strings.Join(lacks, ", "))
	default:
		c.Message, c.Hint, c.Command = fmt.Sprintf("in the namespace %s, it got %s%s", p.Namespace, strings.Join(p.Got, ", "), p.requestedText()), "", ""
		if len(p.Containers) > 0 {
			c.Message += ": containers " + strings.Join(p.Containers, ", ")
		}
	}
	return c
}

// parseDenial returns why the API server denied the pod, or gave no answer about it.
func (f *Facts) parseDenial() explain.Denial {
	help := explain.Help{
		Kubectl: f.Commands.Kubectl, Pillion: f.Commands.Pillion, System: f.Namespace, Namespace: f.Probe.Namespace, Foreign: f.Server.Unknown != "",
	}
	if f.Probe.Timeout != "" {
		return explain.NewTimeout(f.Probe.Timeout, help)
	}
	why, _ := explain.ParseDenial(f.Probe.Denied, help)
	return why
}

// requestedText returns what the message adds if the pod requested its template.
func (p *Probe) requestedText() string {
	if p.Requested == "" {
		return ""
	}
	return ", which it requested"
}

// withoutItems returns the items of a list that are not in another one.
func withoutItems(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(item string) bool { return slices.Contains(others, item) })
}
