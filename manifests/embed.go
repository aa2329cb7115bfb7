// SPDX-License-Identifier: Apache-2.0

// Package manifests contains the kustomize base that installs Pillion, and the names
// in it that the code uses. Its tests check that both agree.
//
// The base takes its templates from the folder templates/library, which is a
// kustomization of its own.
package manifests

import "embed"

// Base holds the files of the kustomize base under "base/", numbered in the
// order in which they are applied.
//
//go:embed base/*.yaml
var Base embed.FS

// The names of Pillion's namespace and objects.
const (
	Namespace = "pillion-system"
	Name      = "pillion" // of the ServiceAccount, Deployment, Service and webhook configurations
	Image     = "ghcr.io/pillion-dev/pillion"

	// ServiceHost is the name that the API server calls. The serving certificate must
	// contain it.
	ServiceHost = Name + "." + Namespace + ".svc"
)

// The ports of the container and the Service.
const (
	ServicePort     = 443
	WebhookPort     = 8443
	AdminPort       = 8080
	WebhookPortName = "webhook"
	AdminPortName   = "admin"
)

// The paths that the API server and the kubelet call.
const (
	MutatePath   = "/mutate"
	ValidatePath = "/validate"
	AdvisePath   = "/advise"
	ShadowPath   = "/shadow"
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
)

// The component advise: the name of its webhook configuration, and its entries. They are for
// workloads in namespaces that opted in, and for workloads whose pods opt in individually.
const (
	AdviseName           = "pillion-advise"
	AdviseNamespaceEntry = "namespace.advise.pillion.dev"
	AdvisePodEntry       = "pod.advise.pillion.dev"
)

// The mounted volumes, and their paths.
const (
	TemplatesConfigMap = "pillion-templates"
	TemplatesPath      = "/etc/pillion/templates"
	TemplateSelector   = "pillion.dev/templates=true" // of the component template-configmaps
	TLSSecret          = "pillion-tls"
	TLSPath            = "/etc/pillion/tls"
)
