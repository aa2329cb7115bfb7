// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// chainText returns the links of the chain in order, and then the problems.
func chainText(r *certs.ChainReport, now time.Time, width int) string {
	var out strings.Builder
	row := func(label string, cells ...string) {
		for _, cell := range cells {
			for _, line := range terminal.Wrap(cell, width-13) {
				fmt.Fprintf(&out, "%-12s %s\n", label, line)
				label = ""
			}
		}
	}
	if r.Source != "" {
		row("source", r.Source)
	}
	if i := r.Issuer; i != nil {
		row("issuer", i.Kind+"/"+i.Name+": "+readyText(i.Ready, i.Reason))
	}
	if c := r.Certificate; c != nil {
		state := readyText(c.Ready, c.Reason)
		if c.Issuing {
			state += ", being issued"
		}
		if c.Renewal != nil {
			state += ", renewal " + timeAndDistance(*c.Renewal, now)
		}
		row("certificate", c.Namespace+"/"+c.Name+": "+state)
	}
	if s := r.Secret; s != nil {
		state := "no usable certificate and key"
		if s.Certificate != nil {
			state = certificateText(s.Certificate, now)
		}
		row("secret", s.Name, state)
	}
	for _, t := range groupTrust(r.Trust) {
		lines := []string{t.Configuration, t.Webhook}
		for _, c := range t.Certificates {
			lines = append(lines, certificateText(&c, now))
		}
		if len(t.Certificates) == 0 {
			lines = append(lines, "empty")
		}
		row("caBundle", lines...)
	}
	for _, s := range r.Served {
		row("served", servedText(s, now)...)
	}
	for _, note := range r.Notes {
		row("note", note)
	}
	for _, problem := range r.Problems {
		row("problem", problem)
	}
	if len(r.Problems) == 0 {
		out.WriteString("API servers can verify Pillion.\n")
	}
	return out.String()
}

// groupTrust merges the webhooks of a configuration that trust the same certificates.
func groupTrust(all []certs.TrustReport) []certs.TrustReport {
	var grouped []certs.TrustReport
	key := func(t certs.TrustReport) string {
		parts := []string{t.Configuration}
		for _, c := range t.Certificates {
			parts = append(parts, c.SHA256)
		}
		return strings.Join(parts, " ")
	}
	for _, t := range all {
		if last := len(grouped) - 1; last >= 0 && key(grouped[last]) == key(t) {
			grouped[last].Webhook += ", " + t.Webhook
			continue
		}
		grouped = append(grouped, t)
	}
	return grouped
}

func readyText(ready bool, reason string) string {
	state := "not ready"
	if ready {
		state = "ready"
	}
	if reason != "" && !ready {
		state += " (" + reason + ")"
	}
	return state
}

// servedText returns whether the presented certificate is accepted, and its details.
func servedText(s certs.ServedReport, now time.Time) []string {
	switch {
	case s.Certificate == nil:
		return []string{s.From + ": no connection: " + s.Error}
	case s.Verified:
		return []string{s.From + ": API servers accept this certificate", certificateText(s.Certificate, now)}
	}
	return []string{s.From + ": API servers do NOT accept this certificate", certificateText(s.Certificate, now)}
}

func certificateText(c *certs.X509Report, now time.Time) string {
	const shown = 12 // prefix of the fingerprint that is enough to distinguish two
	who := c.Subject
	if who == "" && len(c.Names) > 0 {
		who = c.Names[0]
	}
	return fmt.Sprintf("%s [%s], expires %s", who, c.SHA256[:shown], timeAndDistance(c.Expires, now))
}

// timeAndDistance returns a time, and how far it is in the future or past.
func timeAndDistance(t, now time.Time) string {
	const day = 24 * time.Hour
	distance := t.Sub(now)
	amount := distance.Abs().Round(time.Minute).String()
	if distance.Abs() >= 2*day {
		amount = fmt.Sprintf("%d days", int(distance.Abs()/day))
	}
	if distance < 0 {
		return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), amount)
	}
	return fmt.Sprintf("%s (in %s)", t.UTC().Format(time.RFC3339), amount)
}
