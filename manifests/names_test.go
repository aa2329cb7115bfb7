// SPDX-License-Identifier: Apache-2.0

package manifests

import "os"

// Base holds the folders of the manifests. The files in "base" are numbered in the
// order in which they are applied.
var Base = os.DirFS(".")

// Image is the container image.
const Image = "ghcr.io/pillion-dev/pillion"

// The ports of the container and the Service.
const (
	ServicePort   = 443
	WebhookPort   = 8443
	AdminPortName = "admin"
)

// The paths that the API server and the kubelet call.
const (
	MutatePath   = "/mutate"
	ValidatePath = "/validate"
	AdvisePath   = "/advise"
	ShadowPath   = "/shadow"
	LintPath     = "/lint"
	LivePath     = "/livez"
	ReadyPath    = "/readyz"
)

// The entries of the webhook configurations: for pods in namespaces that opted in, for pods that
// opted in individually, and for pods in shadow namespaces.
const (
	MutateNamespaceEntry   = "namespace.mutate.pillion.dev"
	MutatePodEntry         = "pod.mutate.pillion.dev"
	ValidateNamespaceEntry = "namespace.validate.pillion.dev"
	ValidatePodEntry       = "pod.validate.pillion.dev"
	ShadowEntry            = "namespace.shadow.pillion.dev"
	LintEntry              = "lint.pillion.dev"
)

// The name of the webhook configuration that only warns, and its entries. They are for workloads in
// namespaces that opted in, for workloads whose pods opt in individually, and for namespaces with keys that may be
// misspelled.
const (
	AdviseName           = "pillion-advise"
	AdviseNamespaceEntry = "namespace.advise.pillion.dev"
	AdvisePodEntry       = "pod.advise.pillion.dev"
	AdviseMistakeEntry   = "mistake.advise.pillion.dev"
)

// TLSPath is where the Secret with the certificate is mounted.
const TLSPath = "/etc/pillion/tls"
