// SPDX-License-Identifier: Apache-2.0

// Pillion adds sidecars to pods, as an admission webhook or offline in manifests. To list its
// commands, run pillion --help.
package main

import "os"

func main() { os.Exit(runAs(os.Args[0], os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
