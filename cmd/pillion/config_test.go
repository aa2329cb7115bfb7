// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A Service named pillion sets PILLION_PORT, PILLION_PORT_443_TCP,
// PILLION_SERVICE_HOST and more of them in its namespace's pods.
func TestNoFlagIsAServicesVariable(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "port" || strings.HasPrefix(f.Name, "port-") || strings.HasPrefix(f.Name, "service-") {
				t.Errorf("%s --%s", cmd.Name(), f.Name)
			}
		})
	}
}

// Every command says what it does, and shows it.
func TestHelp(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if cmd.Short == "" || !strings.HasPrefix(cmd.Example, "  ") {
			t.Errorf("%s has no short help or no examples", cmd.Name())
		}
	}
}
