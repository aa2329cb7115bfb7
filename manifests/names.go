// SPDX-License-Identifier: Apache-2.0

// Package manifests contains the kustomize base that installs Pillion, and the names
// in it that the code uses. Its tests check that both agree.
//
// The base takes its templates from the folder templates/library, which is a
// kustomization of its own.
package manifests

// The names of Pillion's namespace and objects.
const (
	Namespace = "pillion-system"
	Name      = "pillion" // of the ServiceAccount, Deployment, Service and webhook configurations

	// ControllerName is the name of the controller's ServiceAccount, Deployment and Lease.
	ControllerName = "pillion-controller"

	// ViewerRole is the ClusterRole for users who ask why a pod has a sidecar or not.
	ViewerRole = "pillion-viewer"

	// Replicas and ControllerReplicas are how many replicas the Deployments have.
	Replicas           = 2
	ControllerReplicas = 1

	// CertsPolicy and RolloutPolicy are the policies of overlays/self-signed and components/rollout, and their bindings.
	// Roles have the same names.
	CertsPolicy   = "pillion-certs"
	RolloutPolicy = "pillion-controller-rollout"

	// MinKubernetes and MaxKubernetes are the oldest and the newest version of API servers that the tests run on.
	MinKubernetes = "1.34"
	MaxKubernetes = "1.37"

	// ServiceHost is the name that the API server calls. The serving certificate must
	// contain it.
	ServiceHost = Name + "." + Namespace + ".svc"
	// WebhookPortName is the name of the Service's port.
	WebhookPortName = "webhook"
	// AdminPort is the port of /readyz and /metrics.
	AdminPort = 8080

	TemplatesConfigMap = "pillion-templates"
	TemplatesPath      = "/etc/pillion/templates" // the path at which it is mounted
	TLSSecret          = "pillion-tls"
)
