// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/pillion-dev/pillion/manifests"
)

// Before returns the checks before the installation.
func Before(f *PreFacts) *Report {
	checks := []Check{checkAPIServer(f.Version, f.Commands), f.checkSidecars(), f.checkInstallRights()}
	if f.Overlay == manifests.OverlayCertManager {
		checks = append(checks, f.checkCertManager())
	}
	return newReport(append(checks, f.checkOthers()), f.Commands)
}

func (f *PreFacts) checkSidecars() Check {
	c := Check{Group: ofCluster, Name: "native sidecars", Result: OK, Message: "supported"}
	switch {
	case f.Sidecars.Unknown != "":
		c.Result, c.Message = NotChecked, f.Sidecars.Unknown
		c.Hint, c.Command = "Ask for the right to create pods, even for a dry run:", f.Commands.Kubectl+" auth can-i create pods"
	case !f.Sidecars.Supported:
		c.Result, c.Message = Failed, "the API server drops the field restartPolicy of init containers, so sidecars would block the start of their pods"
		c.Hint, c.Command = "Turn on the feature gate SidecarContainers, and try the field:", f.Commands.Kubectl+" explain pod.spec.initContainers.restartPolicy"
	}
	return c
}

func (f *PreFacts) checkInstallRights() Check {
	c := Check{Group: ofCluster, Name: "rights to install", Result: OK, Message: fmt.Sprintf("you have all %d", f.Rights)}
	switch {
	case f.NoRights != "":
		c.Result, c.Message = NotChecked, f.NoRights
		c.Hint, c.Command = "List your rights:", f.Commands.Kubectl+" auth can-i --list -n "+f.Namespace
	case len(f.Denied) > 0:
		c.Result, c.Message = Failed, fmt.Sprintf("you lack %d of %d", len(f.Denied), f.Rights)
		for _, item := range listRights(f.Denied) {
			c.Details = append(c.Details, "you may not "+item)
		}
		c.Hint = "Ask an administrator to put your group into manifests/deployer.yaml and to apply it:"
		c.Command = f.Commands.Kubectl + " apply --server-side -f manifests/base/10-namespace.yaml -f manifests/deployer.yaml"
	}
	return c
}

func (f *PreFacts) checkCertManager() Check {
	c := Check{Group: ofCluster, Name: "cert-manager", Result: OK, Message: "its kinds are installed"}
	switch {
	case f.NoCertManager != "":
		c.Result, c.Message = NotChecked, f.NoCertManager
		c.Hint, c.Command = "Ask the API server for its kinds:", f.Commands.Kubectl+" api-resources --api-group="+manifests.CertManagerGroup
	case !f.CertManager:
		c.Result, c.Message = Failed, "the API server does not serve "+manifests.CertManagerGroup+"/v1, which the overlay cert-manager needs"
		c.Hint, c.Command = "Install cert-manager, or use the overlay self-signed:", f.Commands.Pillion("check --pre --overlay "+manifests.OverlaySelfSigned)
	}
	return c
}

// checkOthers checks whether a Pillion is installed already.
func (f *PreFacts) checkOthers() Check {
	c := Check{Group: ofPillion, Name: "other installations", Result: OK, Message: "none"}
	if f.Others.Unknown != "" {
		c.Result, c.Message = NotChecked, f.Others.Unknown
		c.Hint, c.Command = "Ask an administrator whether Pillion is installed, or for this right:", f.Commands.Kubectl+" auth can-i list mutatingwebhookconfigurations.admissionregistration.k8s.io"
		return c
	}
	conflict := false
	for _, o := range f.Others.All {
		where := "that calls a URL"
		if o.Namespace != "" {
			where = "of the namespace " + o.Namespace
		}
		c.Details = append(c.Details, o.Title+" "+where)
		conflict = conflict || !o.Own || o.Namespace != f.Namespace
	}
	switch {
	case conflict:
		c.Result, c.Message = Failed, "webhooks of another Pillion would inject the same pods"
		c.Hint, c.Command = "Remove the other one first. See its webhooks:", f.Commands.Kubectl+" get mutatingwebhookconfigurations,validatingwebhookconfigurations"
	case len(f.Others.All) > 0:
		c.Result, c.Message = Warning, "Pillion is installed already, so you would upgrade it"
		c.Hint, c.Command = "Check that installation:", f.Commands.Pillion("check")
	}
	return c
}
