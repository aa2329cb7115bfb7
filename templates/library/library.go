// SPDX-License-Identifier: Apache-2.0

// Package library holds the templates that ship with Pillion. Each is ready to
// use, is injected only if a pod requests it, and meets the Pod Security level
// restricted.
package library

import "embed"

// FS holds the templates, one <name>.yaml each, and the kustomization that makes
// a ConfigMap of them. Loaders of templates ignore the kustomization.
//
//go:embed *.yaml
var FS embed.FS
