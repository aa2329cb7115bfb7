// SPDX-License-Identifier: Apache-2.0

// Package library holds the templates that ship with Pillion. Each is ready to
// use, is injected only where a pod asks for it, and keeps to the Restricted Pod
// Security Standard.
package library

import "embed"

// FS holds the templates, one <name>.yaml each, and the kustomization that makes
// a ConfigMap of them, which no loader of templates takes for one.
//
//go:embed *.yaml
var FS embed.FS
