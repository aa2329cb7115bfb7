// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
)

// injectAnnotation names the Certificate whose CA cainjector writes into the caBundle.
const injectAnnotation = certmanagerv1.WantInjectAnnotation

// renewalLate is how long a renewal may be overdue before it counts as late.
const renewalLate = 10 * time.Minute

// checkCertManager reports on the Issuer and the Certificate. It returns the first problem.
func (c *Chain) checkCertManager(r *ChainReport) string {
	var issuer, certificate string
	if c.Issuer != nil {
		r.Issuer, issuer = checkIssuer(c.Issuer)
	}
	if c.Certificate != nil {
		r.Certificate, certificate = c.checkCertificate()
	}
	switch {
	case !c.CertManager && len(c.Unread) == 0:
		return "cert-manager is not installed in this cluster; install it, or install Pillion with overlays/self-signed"
	case c.Certificate == nil && len(c.Unread) == 0:
		return fmt.Sprintf("the Certificate %s does not exist, and cert-manager takes the caBundle from it; install Pillion again", c.injectFrom())
	case c.Issuer == nil && c.Certificate != nil && len(c.Unread) == 0:
		ref := c.Certificate.Spec.IssuerRef
		return fmt.Sprintf("the %s %s does not exist, and the Certificate %s/%s needs it; install Pillion again", issuerKind(ref), ref.Name, c.Certificate.Namespace, c.Certificate.Name)
	case issuer != "":
		return issuer
	}
	return certificate
}

func (c *Chain) injectFrom() string {
	for _, w := range c.Configurations {
		if w.InjectFrom != "" {
			return w.InjectFrom
		}
	}
	return ""
}

func issuerKind(ref cmmeta.IssuerReference) string {
	if ref.Kind == "" {
		return certmanagerv1.IssuerKind
	}
	return ref.Kind
}

func checkIssuer(i certmanagerv1.GenericIssuer) (*IssuerReport, string) {
	report := &IssuerReport{Kind: certmanagerv1.IssuerKind, Name: i.GetName()}
	if i.GetNamespace() == "" {
		report.Kind = certmanagerv1.ClusterIssuerKind
	}
	for _, condition := range i.GetStatus().Conditions {
		if condition.Type == certmanagerv1.IssuerConditionReady {
			report.Ready = condition.Status == cmmeta.ConditionTrue
			report.Reason, report.Message = condition.Reason, condition.Message
		}
	}
	if report.Ready {
		return report, ""
	}
	return report, fmt.Sprintf("the %s %s is not ready%s; run `kubectl describe` on it", report.Kind, report.Name, reasonInParens(report.Reason, report.Message))
}

func (c *Chain) checkCertificate() (*CertificateReport, string) {
	status := c.Certificate.Status
	report := &CertificateReport{Namespace: c.Certificate.Namespace, Name: c.Certificate.Name}
	for _, condition := range status.Conditions {
		switch condition.Type {
		case certmanagerv1.CertificateConditionReady:
			report.Ready = condition.Status == cmmeta.ConditionTrue
			report.Reason, report.Message = condition.Reason, condition.Message
		case certmanagerv1.CertificateConditionIssuing:
			report.Issuing = condition.Status == cmmeta.ConditionTrue
		}
	}
	if status.NotAfter != nil {
		report.Expires = new(status.NotAfter.UTC())
	}
	if status.RenewalTime != nil {
		report.Renewal = new(status.RenewalTime.UTC())
	}
	name := report.Namespace + "/" + report.Name
	switch {
	case !report.Ready:
		return report, fmt.Sprintf("the Certificate %s is not ready%s; run `kubectl -n %s describe certificaterequest`",
			name, reasonInParens(report.Reason, report.Message), report.Namespace)
	case report.Renewal != nil && c.Now.Sub(*report.Renewal) > renewalLate:
		return report, fmt.Sprintf("the Certificate %s should have been renewed at %s and was not; check that cert-manager's controller runs, and read its log",
			name, formatTime(*report.Renewal))
	}
	return report, ""
}

// reasonInParens returns a condition's reason in parentheses.
func reasonInParens(reason, message string) string {
	text := strings.Trim(reason+": "+strings.Join(strings.Fields(message), " "), ": ")
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// namespaceOf returns the namespace in namespace/name.
func namespaceOf(name string) string {
	namespace, _, _ := strings.Cut(name, "/")
	return namespace
}
