// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/manifests"
)

// shownNames is how many names a message has.
const shownNames = 10

func (f *Facts) checkReplicas() Check {
	c := f.checkDeployment(&f.Server, "replicas")
	if f.Chain.Outside && !f.Server.Found {
		c.Result, c.Message = NotChecked, "API servers call a URL, so Pillion does not run in this cluster"
		c.Hint, c.Command = "Check the server at that URL:", f.Commands.Pillion("certs")
	}
	return c
}

func (f *Facts) checkController() Check {
	c := f.checkDeployment(&f.Controller, "controller")
	unused := !slices.ContainsFunc(f.Kinds, func(k Kind) bool { return k.Found || k.Unknown != "" })
	if c.Result == Failed && !f.Controller.Found && unused {
		c = Check{Group: ofPillion, Name: c.Name, Result: OK, Message: "not installed, because the kinds of templates are not"}
	}
	return c
}

// checkDeployment checks whether all replicas of a Deployment are ready.
func (f *Facts) checkDeployment(d *Deployment, name string) Check {
	c := Check{Group: ofPillion, Name: name, Result: OK, Message: fmt.Sprintf("%d of %d ready", d.Ready, d.Wanted)}
	switch {
	case d.Unknown != "":
		c.Result, c.Message = NotChecked, d.Unknown
		c.Hint, c.Command = "Ask for the verb get on the resource deployments there:", f.Commands.Kubectl+" -n "+f.Namespace+" auth can-i get deployments.apps/"+d.Name
	case !d.Found:
		c.Result, c.Message = Failed, fmt.Sprintf("there is no Deployment %s in the namespace %s", d.Name, f.Namespace)
		c.Hint, c.Command = applyAgain, f.Commands.Kubectl+" "+applyCommand
	case d.Wanted == 0:
		c.Result, c.Message = Failed, "the Deployment "+d.Name+" is scaled to 0 replicas"
		c.Hint, c.Command = "Scale it up:", fmt.Sprintf("%s -n %s scale deployment/%s --replicas=%d", f.Commands.Kubectl, f.Namespace, d.Name, replicasOf(d.Name))
	case d.Ready < d.Wanted:
		c.Result = Failed
		c.Hint, c.Command = "See why:", fmt.Sprintf("%s -n %s describe pods -l app.kubernetes.io/name=%s", f.Commands.Kubectl, f.Namespace, d.Name)
	case d.Updated < d.Wanted:
		c.Result, c.Message = Warning, fmt.Sprintf("%d of %d replicas are not updated yet", d.Wanted-d.Updated, d.Wanted)
		c.Hint, c.Command = "Wait for the rollout:", fmt.Sprintf("%s -n %s rollout status deployment/%s", f.Commands.Kubectl, f.Namespace, d.Name)
	}
	return c
}

// replicasOf returns how many replicas the manifests have.
func replicasOf(deployment string) int {
	if deployment == manifests.Name {
		return manifests.Replicas
	}
	return manifests.ControllerReplicas
}

var revision = regexp.MustCompile(`(?m)^\[\+\]templates ok: revision ([0-9a-f]+)`)

// checkAgreement compares the revisions of the templates that the replicas use. That they agree on the
// certificate follows from the certificate's check, which connects to each of them.
func (f *Facts) checkAgreement() Check {
	c := Check{Group: ofPillion, Name: "agreement", Result: OK}
	pods := map[string][]string{} // by revision
	var without []string          // templates
	for _, r := range f.Replicas.All {
		m := revision.FindStringSubmatch(r.Answer)
		switch {
		case r.Unknown != "":
			c.Details = append(c.Details, r.Pod+": "+r.Unknown)
		case m == nil:
			without = append(without, r.Pod+" has no templates: "+failedConditions(r.Answer))
		default:
			pods[m[1]] = append(pods[m[1]], r.Pod)
		}
	}
	revisions := slices.Sorted(maps.Keys(pods))
	switch {
	case len(without) > 0:
		c.Result, c.Message, c.Details = Failed, "some replicas have no templates", without
		c.Hint, c.Command = "Read the log:", fmt.Sprintf("%s -n %s logs -l app.kubernetes.io/name=%s --prefix", f.Commands.Kubectl, f.Namespace, manifests.Name)
	case f.Replicas.Unknown != "" || len(f.Replicas.All) == 0 || len(c.Details) > 0:
		c.Result, c.Message = NotChecked, "the templates that the replicas use are unknown"
		if why := f.Replicas.sameUnknown(); why != "" {
			c.Message, c.Details = why, nil
		}
		c.Hint, c.Command = "Compare the revision in the log of each replica:", fmt.Sprintf("%s -n %s logs -l app.kubernetes.io/name=%s --prefix --tail=-1", f.Commands.Kubectl, f.Namespace, manifests.Name)
	case len(revisions) > 1:
		c.Result, c.Message = Failed, "the replicas use different templates"
		for _, r := range revisions {
			c.Details = append(c.Details, "revision "+r+": "+strings.Join(pods[r], ", "))
		}
		c.Hint, c.Command = "After a change of templates, wait a minute. If they still differ, read the log:", fmt.Sprintf("%s -n %s logs -l app.kubernetes.io/name=%s --prefix", f.Commands.Kubectl, f.Namespace, manifests.Name)
	default:
		c.Message = formatCount(len(f.Replicas.All), "replica") + " with revision " + revisions[0] + " of the templates"
	}
	return c
}

// sameUnknown returns why the facts about all replicas are unknown, or "" if some are known, or for different reasons.
func (r *Replicas) sameUnknown() string {
	if r.Unknown != "" || len(r.All) == 0 {
		return r.Unknown
	}
	why := r.All[0].Unknown
	if slices.ContainsFunc(r.All, func(other Replica) bool { return other.Unknown != why }) {
		return ""
	}
	return why
}

// failedConditions returns the conditions of /readyz?verbose that failed, or the whole answer.
func failedConditions(answer string) string {
	var failed []string
	for line := range strings.Lines(answer) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if len(failed) == 0 {
		return answer
	}
	return strings.Join(failed, "; ")
}

// checkTemplates checks the condition of each template object, which is by the controller, and the other
// templates as far as this program can compile them.
func (f *Facts) checkTemplates() Check {
	c := Check{Group: ofPillion, Name: "templates", Result: OK, Message: formatCount(f.Templates.Valid, "template") + " accepted"}
	if f.Templates.Unknown != "" {
		c.Result, c.Message = NotChecked, f.Templates.Unknown
		if f.Templates.Allow != "" {
			c.Hint, c.Command = allowHint, f.Templates.Allow
			return c
		}
		c.Hint, c.Command = "See what Pillion uses:", fmt.Sprintf("%s -n %s logs -l app.kubernetes.io/name=%s --prefix", f.Commands.Kubectl, f.Namespace, manifests.Name)
		return c
	}
	var rejected, waiting []string
	for _, t := range f.Templates.Objects {
		switch {
		case t.Status == "" || t.Outdated:
			waiting = append(waiting, t.ID+" has no current condition Ready")
		case t.Status != "True":
			rejected = append(rejected, fmt.Sprintf("%s: %s: %s", t.ID, t.Reason, t.Message))
		}
	}
	for _, problem := range f.Templates.Problems {
		reported := slices.ContainsFunc(f.Templates.Objects, func(t Template) bool { return t.Status == "False" && strings.Contains(problem, t.ID+":") })
		if !reported {
			rejected = append(rejected, problem)
		}
	}
	c.Details = slices.Concat(rejected, waiting)
	switch {
	case len(rejected) > 0:
		c.Result, c.Message = Failed, "some are not accepted"
		c.Hint, c.Command = "Fix these templates, and check them before you apply them:", "pillion lint FILE"
	case len(waiting) > 0 && f.Controller.Found:
		c.Result, c.Message = Warning, formatCount(len(waiting), "template")+" without a report by the controller"
		c.Hint, c.Command = "Read the log of the controller:", fmt.Sprintf("%s -n %s logs deployment/%s", f.Commands.Kubectl, f.Namespace, manifests.ControllerName)
	case len(waiting) > 0:
		c.Details = nil
	}
	return c
}

// checkRollouts reports the automatic rollouts, if some run or have stopped.
func (f *Facts) checkRollouts() []Check {
	c := Check{Group: ofPillion, Name: "rollouts", Result: OK, Message: formatCount(f.Templates.Running, "automatic rollout") + " in progress"}
	switch {
	case len(f.Templates.Stopped) > 0:
		c.Result, c.Message, c.Details = Warning, formatCount(len(f.Templates.Stopped), "automatic rollout")+" stopped, because a pod has failed", f.Templates.Stopped
		c.Hint, c.Command = "Fix the template, or go back to an earlier content:", "pillion rollout undo TEMPLATE"
	case f.Templates.Running == 0:
		return nil
	}
	return []Check{c}
}

func (f *Facts) checkNamespaces() Check {
	n := &f.Namespaces
	c := Check{Group: ofPods, Name: "namespaces", Result: OK, Message: "opted in: " + firstNames(n.OptedIn)}
	if len(n.Shadow) > 0 {
		c.Details = append(c.Details, "shadow only: "+firstNames(n.Shadow))
	}
	optIn := f.Commands.Kubectl + " label namespace NAMESPACE " + inject.LabelInject + "=" + inject.Enabled
	switch {
	case n.Unknown != "":
		c.Result, c.Message = NotChecked, n.Unknown
		c.Hint, c.Command = "Name a namespace that opted in:", f.Commands.Pillion("check --namespace NAMESPACE")
	case len(n.Wrong) > 0:
		c.Result = Warning
		c.Details = append(c.Details, "a label value without meaning: "+firstNames(n.Wrong))
		c.Hint, c.Command = "Correct the label:", optIn+" --overwrite"
	case len(n.OptedIn) == 0:
		c.Result, c.Hint, c.Command = Warning, "Opt in a namespace:", optIn
	}
	if len(n.OptedIn) == 0 && n.Unknown == "" {
		c.Message = "none opted in, so Pillion injects only pods that opt in themselves"
	}
	return c
}

// firstNames returns the first names of a list, and the number of the others.
func firstNames(names []string) string {
	if len(names) <= shownNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), len(names)-shownNames)
}
