// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// showWhatToTry is for KEEP=1.
func (d *demo) showWhatToTry() {
	d.screen.heading("4. Your turn: everything stays up until you press Ctrl-C")
	for _, command := range []string{
		"export KUBECONFIG=" + d.Kubeconfig,
		"alias k=" + d.Kubectl + " pillion=" + d.Path("pillion"),
		"k get pods --namespace " + optedIn,
		"k get pods --namespace " + optedIn + " --output yaml",
		"k run mine --namespace " + optedIn + " --image registry.example/mine:1 --dry-run=server --output yaml",
		"k run mine --namespace " + optedIn + " --image registry.example/mine:1 \\",
		"    --annotations pillion.dev/templates=+auth-proxy",
		"pillion explain pod/mine --namespace " + optedIn,
		"pillion status",
		"k run mine --namespace " + notOptedIn + " --image registry.example/mine:1 \\",
		"    --labels pillion.dev/inject=enabled",
	} {
		fmt.Fprintln(d.screen.out, "  "+command) // never clipped: these are to be copied
	}
}
