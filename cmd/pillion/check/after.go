// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// After returns the checks after the installation.
func After(f *Facts) *Report {
	checks := []Check{checkAPIServer(f.Version, f.Commands)}
	if !f.Server.Found && f.Server.Unknown == "" && f.ChainUnknown == "" && !slices.ContainsFunc(f.Chain.Configurations, func(w certs.WebhookConfiguration) bool { return w.Found || w.Unread }) {
		return newReport(append(checks, Check{
			Group: ofPillion, Name: "installation", Result: Failed,
			Message: fmt.Sprintf("there is no Deployment %s in the namespace %s, and no webhook configuration %[1]s", manifests.Name, f.Namespace),
			Hint:    "Check whether you can install Pillion, or use --system-namespace if it runs elsewhere:", Command: f.Commands.Pillion("check --pre"),
		}), f.Commands)
	}
	checks = append(checks, f.checkRights(), f.checkKinds(), f.checkRegistered(), f.checkReachable(), f.checkCertificate(), f.checkReplicas(), f.checkAgreement(), f.checkController(), f.checkTemplates())
	return newReport(append(append(checks, f.checkRollouts()...), f.checkNamespaces(), f.checkProbe()), f.Commands)
}
