// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the API types of templates. They are the only source of the parser of
// template files, of the CustomResourceDefinitions, of the JSON Schema for editors and of the tables
// in the reference. A comment on a field is its text in kubectl explain.
//
// +groupName=pillion.dev
package v1alpha1

// The identity of objects.
const (
	Group   = "pillion.dev"
	Version = "v1alpha1"

	ClusterKind    = "ClusterSidecarTemplate" // for the pods of all namespaces
	NamespacedKind = "SidecarTemplate"        // for the pods of its own namespace

	ClusterResource    = "clustersidecartemplates"
	NamespacedResource = "sidecartemplates"
)
