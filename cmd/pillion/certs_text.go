// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pillion-dev/pillion/certs"
)

// writeChain writes the report for people: the links in their order, then what is wrong.
func writeChain(w io.Writer, r *certs.ChainReport, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")) }
	row("source", r.Source)
	if i := r.Issuer; i != nil {
		row("issuer", i.Kind+"/"+i.Name, readiness(i.Ready, i.Reason))
	}
	if c := r.Certificate; c != nil {
		state := readiness(c.Ready, c.Reason)
		if c.Issuing {
			state += ", being issued"
		}
		if c.Renewal != nil {
			state += ", renewal " + when(*c.Renewal, now)
		}
		row("certificate", c.Namespace+"/"+c.Name, state)
	}
	if s := r.Secret; s != nil {
		state := "no usable pair"
		if s.Certificate != nil {
			state = summary(s.Certificate, now)
		}
		row("secret", s.Name, state)
	}
	for _, t := range trusted(r.Trust) {
		if len(t.Certificates) == 0 {
			row("trusted by", t.Configuration, t.Webhook+": nothing")
		}
		for _, c := range t.Certificates {
			row("trusted by", t.Configuration, t.Webhook+": "+summary(&c, now))
		}
	}
	for _, s := range r.Served {
		row("served", s.From, verdict(s, now))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", note)
	}
	for _, problem := range r.Problems {
		fmt.Fprintln(w, "wrong:", problem)
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(w, "API servers can verify Pillion.")
	}
	return nil
}

// trusted puts the webhooks of a configuration that trust the same into one line.
func trusted(all []certs.TrustReport) []certs.TrustReport {
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

func readiness(ready bool, reason string) string {
	state := "not ready"
	if ready {
		state = "ready"
	}
	if reason != "" && !ready {
		state += " (" + reason + ")"
	}
	return state
}

func verdict(s certs.ServedReport, now time.Time) string {
	switch {
	case s.Certificate == nil:
		return "not reached: " + s.Error
	case s.Verified:
		return summary(s.Certificate, now) + ", verified"
	}
	return summary(s.Certificate, now) + ", NOT verified"
}

func summary(c *certs.X509Report, now time.Time) string {
	const shown = 12 // of the fingerprint: enough to tell two apart
	who := c.Subject
	if who == "" && len(c.Names) > 0 {
		who = c.Names[0]
	}
	return fmt.Sprintf("%s [%s], expires %s", who, c.SHA256[:shown], when(c.Expires, now))
}

// when is a day, and how far it is.
func when(t, now time.Time) string {
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
