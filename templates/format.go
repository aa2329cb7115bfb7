// SPDX-License-Identifier: Apache-2.0

package templates

import "github.com/pillion-dev/pillion/templates/v1alpha1"

type (
	// Spec is the content of a template.
	Spec = v1alpha1.Spec
	// Match selects the pods of a template.
	Match = v1alpha1.Match
	// Param is a value that pods and namespaces may set.
	Param = v1alpha1.Param
	// ParamType is the name of a type of parameters.
	ParamType = v1alpha1.ParamType
	// Scalar is a string that YAML may contain without quotes.
	Scalar = v1alpha1.Scalar
	// Overrider is a kind of object whose annotations may set a parameter.
	Overrider = v1alpha1.Overrider
	// Variable is a named expression.
	Variable = v1alpha1.Variable
	// Placement is where the template's containers go.
	Placement = v1alpha1.Placement
	// Position is a position in a list of containers.
	Position = v1alpha1.Position
	// End is an end of a list of containers.
	End = v1alpha1.End
	// TokenMode defines whether a sidecar gets the pod's API token.
	TokenMode = v1alpha1.TokenMode
	// ValidateRules define what the validating webhook does about a final pod.
	ValidateRules = v1alpha1.ValidateRules
	// ValidateMode is Deny or Warn.
	ValidateMode = v1alpha1.ValidateMode
)

// The values of their enumerations.
const (
	ByPod            = v1alpha1.ByPod
	ByServiceAccount = v1alpha1.ByServiceAccount
	ByNamespace      = v1alpha1.ByNamespace

	First = v1alpha1.First
	Last  = v1alpha1.Last

	Inherit = v1alpha1.Inherit
	None    = v1alpha1.None

	Deny = v1alpha1.Deny
	Warn = v1alpha1.Warn
)
