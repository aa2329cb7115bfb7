// SPDX-License-Identifier: Apache-2.0

// Pillion puts sidecars into pods: as an admission webhook, or offline into
// manifests. Its commands are listed by pillion --help.
package main

import "os"

func main() { os.Exit(runAs(os.Args[0], os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
