// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"embed"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

//go:embed deployer.yaml base/30-rbac.yaml controller/rbac.yaml overlays/self-signed/rbac.yaml
var roles embed.FS

// The overlays.
const (
	OverlayCertManager = "cert-manager"
	OverlaySelfSigned  = "self-signed"
)

// CertManagerGroup is the API group of cert-manager's kinds.
const CertManagerGroup = "cert-manager.io"

// Rights are the rules of roles: for the whole cluster, and for the objects in Pillion's namespace.
type Rights struct{ Cluster, Namespaced []rbacv1.PolicyRule }

// Right is one verb for a resource, or for one object.
type Right struct {
	Verb, Group, Resource string
	Name                  string // of the object; "": all objects
	Namespace             string // "": all namespaces, or a resource without namespaces
}

// String returns the right as messages name it.
func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	text := r.Verb + " " + resource
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in the namespace " + r.Namespace
	}
	return text
}

// Expand returns the single rights that rules give in a namespace. If namespace is "", the rules are for all of them.
func Expand(namespace string, rules ...rbacv1.PolicyRule) (all []Right) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, Right{Verb: verb, Group: group, Resource: resource, Name: name, Namespace: namespace})
					}
				}
			}
		}
	}
	return all
}

// Expand returns the single rights, each once and sorted. Namespace is Pillion's.
func (r Rights) Expand(namespace string) []Right {
	all := append(Expand("", r.Cluster...), Expand(namespace, r.Namespaced...)...)
	slices.SortFunc(all, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Verb, b.Verb))
	})
	return slices.Compact(all)
}

// ServerRights returns the rights that the ServiceAccount of pillion serve needs. SelfSigned is
// set if Pillion creates its certificate itself.
func ServerRights(selfSigned bool) (Rights, error) {
	if selfSigned {
		return rightsIn("base/30-rbac.yaml", "overlays/self-signed/rbac.yaml")
	}
	return rightsIn("base/30-rbac.yaml")
}

// ControllerRights returns the rights that the ServiceAccount of pillion controller needs.
func ControllerRights() (Rights, error) { return rightsIn("controller/rbac.yaml") }

// Limited is a right of a ServiceAccount that RBAC cannot limit to what Pillion needs, and the name of the
// ValidatingAdmissionPolicy, and of its binding, that does.
type Limited struct {
	Account string
	Right   Right
	Policy  string
}

// LimitedRights returns the rights that policies limit. An installation may lack them.
func LimitedRights() []Limited {
	return []Limited{
		{Name, Right{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: Name}, CertsPolicy},
		{ControllerName, Right{Verb: "patch", Group: "apps", Resource: "deployments"}, RolloutPolicy},
	}
}

// DeployerRights returns the rights that a user needs to install an overlay.
func DeployerRights(overlay string) (Rights, error) {
	r, err := rightsIn("deployer.yaml")
	r.Cluster, r.Namespaced = rulesFor(overlay, r.Cluster), rulesFor(overlay, r.Namespaced)
	return r, err
}

// rightsIn returns the rules of all roles in some files.
func rightsIn(paths ...string) (r Rights, err error) {
	for _, path := range paths {
		text, err := roles.ReadFile(path)
		if err != nil {
			return Rights{}, err
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var role struct {
				Kind  string              `json:"kind"`
				Rules []rbacv1.PolicyRule `json:"rules"`
			}
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				return Rights{}, err
			}
			switch role.Kind {
			case "ClusterRole":
				r.Cluster = append(r.Cluster, role.Rules...)
			case "Role":
				r.Namespaced = append(r.Namespaced, role.Rules...)
			}
		}
	}
	return r, nil
}

// rulesFor returns the rules without those that only the other overlay needs.
func rulesFor(overlay string, rules []rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	for _, rule := range rules {
		named := len(rule.ResourceNames) > 0
		if overlay != OverlaySelfSigned {
			rule.ResourceNames = slices.DeleteFunc(slices.Clone(rule.ResourceNames), func(name string) bool {
				return slices.Contains([]string{CertsPolicy, TLSSecret}, name)
			})
		}
		others := overlay == OverlaySelfSigned && slices.Contains(rule.APIGroups, CertManagerGroup)
		if !others && (len(rule.ResourceNames) > 0 || !named) {
			all = append(all, rule)
		}
	}
	return all
}
