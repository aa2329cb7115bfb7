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
	checks := []Check{apiServer(f.Version, f.Commands)}
	if !f.Server.Found && f.Server.Unknown == "" && f.ChainUnknown == "" && !slices.ContainsFunc(f.Chain.Configurations, func(w certs.WebhookConfiguration) bool { return w.Found || w.Unread }) {
		return newReport(append(checks, Check{
			Group: ofPillion, Name: "installation", Result: Failed,
			Message: fmt.Sprintf("there is no Deployment %s in the namespace %s, and no webhook configuration %[1]s", manifests.Name, f.Namespace),
			Hint:    "Check whether you can install Pillion, or use --system-namespace if it runs elsewhere:", Command: f.Commands.Pillion("check --pre"),
		}), f.Commands)
	}
	checks = append(checks, f.rights(), f.kinds(), f.registered(), f.reachable(), f.certificate(), f.replicas(), f.agreement(), f.controller(), f.templates())
	return newReport(append(append(checks, f.rollouts()...), f.namespaces(), f.probe()), f.Commands)
}
