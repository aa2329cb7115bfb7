// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// fields is what a fragment may set: anything if it is nil, otherwise only these fields.
type fields map[string]fields

// podFields omit what scheduling and earlier admission plugins have decided before the API server
// calls a webhook.
func podFields() fields {
	return fields{
		"metadata": {"annotations": nil, "labels": nil},
		"spec": {
			"initContainers": nil, "containers": nil, "volumes": nil, "imagePullSecrets": nil,
			"hostAliases": nil, "tolerations": nil, "shareProcessNamespace": nil,
			"securityContext": {"fsGroup": nil, "supplementalGroups": nil},
		},
	}
}

// forEachFields omit the fields that define which program an app container runs, and how, and those that the API server has
// set in each container before it calls a webhook.
func forEachFields() fields {
	return fields{
		"env": nil, "envFrom": nil, "volumeMounts": nil, "volumeDevices": nil, "ports": nil,
		"resources": nil, "securityContext": nil, "lifecycle": nil,
	}
}

func (c *parser) checkAllowedFields(y *yaml.Node, path string, allowed fields) {
	if allowed == nil {
		return
	}
	for key, value := range yamlnode.Members(y) {
		sub, ok := allowed[key.Value]
		if !ok && key.Value != fragment.WhenKey {
			c.ReportProblem(key, problem.JoinPath(path, key.Value), "a template may not set this; it may set %s",
				strings.Join(slices.Sorted(maps.Keys(allowed)), ", "))
			continue
		}
		c.checkAllowedFields(value, problem.JoinPath(path, key.Value), sub)
	}
}

// maxContainers limits the containers of a list in a template.
const maxContainers = 100

// podRules checks a pod fragment beyond its types: the rules of the API server's validation that a
// fragment alone can break. It returns the names of the containers, by list.
func (c *parser) podRules(y *yaml.Node, path string) (names map[string][]string) {
	names = map[string][]string{}
	c.checkAllowedFields(y, path, podFields())
	c.checkMetadataKeys(yamlnode.Child(yamlnode.Child(y, "metadata"), "annotations"), path+".metadata.annotations", func(_, prefix string) string {
		if isInDomain(prefix, Domain) {
			return "keys of " + Domain + " are for Pillion and for authors of pods; a template may not set them"
		}
		return ""
	})
	spec := yamlnode.Child(y, "spec")
	c.checkNames(yamlnode.Child(spec, "volumes"), path+".spec.volumes", map[string]bool{})
	volumes := volumeKinds(spec)
	c.CheckPodOS(spec, path+".spec")
	seen := map[string]bool{}
	for _, list := range fragment.ContainerLists {
		containers := yamlnode.Child(spec, list)
		if n := len(yamlnode.Items(containers)); n > maxContainers {
			c.ReportProblem(containers, path+".spec."+list, "has %d containers, and at most %d are allowed", n, maxContainers)
			continue
		}
		c.checkNames(containers, path+".spec."+list, seen)
		for i, container := range yamlnode.Items(containers) {
			sub := fmt.Sprintf("%s.spec.%s[%d]", path, list, i)
			c.containerRules(container, sub, list == "initContainers")
			c.checkMounts(container, sub, volumes)
			c.CheckContainerOS(container, sub)
			written := yamlnode.Child(container, "name")
			if written == nil {
				continue // already reported
			}
			name, _ := fragment.NamePattern(written.Value) // an error is already reported
			if !fragment.HasConstant(name) {
				c.ReportProblem(written, sub+".name", "must begin or end with a constant part, such as cache-${m}, because Pillion recognizes its own containers by it")
			}
			names[list] = append(names[list], name)
		}
	}
	return names
}

func (c *parser) forEachRules(y *yaml.Node, path string, pod *yaml.Node) {
	c.checkAllowedFields(y, path, forEachFields())
	c.checkMounts(y, path, volumeKinds(yamlnode.Child(pod, "spec")))
	c.CheckAppended(yamlnode.Child(y, "env"), path+".env")
	c.CheckContainerOS(y, path)
	c.ForbidKeys(yamlnode.Child(yamlnode.Child(y, "securityContext"), "windowsOptions"), path+".securityContext.windowsOptions",
		"a template may not set this for the pod's own containers", "hostProcess")
}

// checkMetadataKeys checks the keys of labels or annotations. The function wrong returns any other error of a
// key.
func (c *parser) checkMetadataKeys(y *yaml.Node, path string, wrong func(key, prefix string) string) {
	for key := range yamlnode.Members(y) {
		if strings.Contains(key.Value, "${") {
			continue // a condition, or reported already
		}
		if errs := validation.IsQualifiedName(strings.ToLower(key.Value)); len(errs) > 0 {
			c.ReportProblem(key, problem.JoinPath(path, key.Value), "not a valid key: %s", problem.TrimPattern(errs[0]))
			continue
		}
		prefix, _, ok := strings.Cut(key.Value, "/")
		if !ok {
			prefix = ""
		}
		if message := wrong(key.Value, prefix); message != "" {
			c.ReportProblem(key, problem.JoinPath(path, key.Value), "%s", message)
		}
		if strings.HasSuffix(path, ".annotations") && slices.ContainsFunc(reservedAnnotations(), func(prefix string) bool { return strings.HasPrefix(key.Value, prefix) }) {
			c.ReportProblem(key, problem.JoinPath(path, key.Value), "the API server reads this annotation; set the field that replaced it")
		}
	}
}

// reservedAnnotations returns prefixes of annotation keys that the API server reads, drops or
// compares with the rest of a pod.
func reservedAnnotations() []string {
	return []string{
		corev1.MirrorPodAnnotationKey, corev1.TolerationsAnnotationKey, corev1.SeccompPodAnnotationKey, corev1.SeccompContainerAnnotationKeyPrefix,
		corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix, "pod.alpha.kubernetes.io/init-", "pod.beta.kubernetes.io/init-",
	}
}

// isInDomain reports whether a key's prefix is the domain or one of its subdomains.
func isInDomain(prefix, domain string) bool {
	return prefix == domain || strings.HasSuffix(prefix, "."+domain)
}

// reservedDomains returns the domains whose labels have a meaning for Kubernetes or Pillion.
func reservedDomains() []string { return []string{"kubernetes.io", "k8s.io", Domain} }

// checkLabels checks the keys of labels. Controllers select their pods by labels. If a template added a
// label that a controller's selector excludes, the controller would never find its pod and would
// create new ones without end.
func (c *parser) checkLabels(y *yaml.Node, t *Template) {
	list := yamlnode.At(y, "spec", "labelDomains")
	for i, domain := range t.Spec.LabelDomains {
		path := fmt.Sprintf("spec.labelDomains[%d]", i)
		switch taken := slices.IndexFunc(reservedDomains(), func(d string) bool { return isInDomain(domain, d) }); {
		case taken >= 0:
			c.ReportProblem(list.Content[i], path, "a template may not set labels of %s", reservedDomains()[taken])
		case !strings.Contains(domain, ".") || len(validation.IsDNS1123Subdomain(domain)) > 0:
			c.ReportProblem(list.Content[i], path, "must be a domain such as example.com, without a slash")
		}
	}
	own, replaced := t.Name+"."+Domain, t.Spec.Replaces+"."+Domain
	c.checkMetadataKeys(yamlnode.Child(yamlnode.At(y, "spec", "pod", "metadata"), "labels"), "spec.pod.metadata.labels", func(key, prefix string) string {
		name := key[strings.LastIndexByte(key, '/')+1:]
		instead := fmt.Sprintf("use the template's own %s/%s", own, name)
		switch {
		case prefix == own, prefix == replaced && t.Spec.Replaces != "":
			return ""
		case prefix == "":
			return "a template may not set a label without a prefix, because a controller whose selector excludes it would create pods without end; " + instead
		case slices.ContainsFunc(reservedDomains(), func(d string) bool { return isInDomain(prefix, d) }):
			return "a template may not set labels of kubernetes.io, k8s.io and pillion.dev; " + instead
		case !slices.ContainsFunc(t.Spec.LabelDomains, func(d string) bool { return isInDomain(prefix, d) }):
			return fmt.Sprintf("a template may set only labels with its own prefix; %s, or, if no workload selects pods by the label, add its domain to spec.labelDomains", instead)
		}
		return ""
	})
}

// annotationDomains checks the domains of another product. A domain of which the template reads nothing is a mistake:
// every annotation of it would be reported.
func (c *parser) annotationDomains(y *yaml.Node, t *Template) {
	list := yamlnode.At(y, "spec", "annotationDomains")
	for i, domain := range t.Spec.AnnotationDomains {
		path := fmt.Sprintf("spec.annotationDomains[%d]", i)
		reads := slices.ContainsFunc(t.Spec.Params, func(p v1alpha1.Param) bool {
			return strings.HasPrefix(cmp.Or(p.Annotation, p.Prefix), domain+"/")
		})
		switch {
		case len(validation.IsDNS1123Subdomain(domain)) > 0: // a prefix may have no dot, for example gke-gcsfuse
			c.ReportProblem(list.Content[i], path, "must be a domain such as example.com, without a slash")
		case isInDomain(domain, Domain):
			c.ReportProblem(list.Content[i], path, "must be the domain of another product; Pillion warns about unknown annotations of %s anyway", Domain)
		case !reads:
			c.ReportProblem(list.Content[i], path, "no parameter reads an annotation of %s; add one with annotation or prefix, or remove the domain", domain)
		}
	}
}

// checkNames checks the names in a list of containers or volumes. Two conditional items may have the same name, if only one of them
// exists for each pod. The map seen has the names so far, and whether their items are conditional.
func (c *parser) checkNames(list *yaml.Node, path string, seen map[string]bool) {
	for i, item := range yamlnode.Items(list) {
		sub := fmt.Sprintf("%s[%d].name", path, i)
		name, conditional := yamlnode.Child(item, "name"), yamlnode.Child(item, fragment.WhenKey) != nil
		if name == nil {
			continue // already reported
		}
		if strings.Contains(name.Value, "${") {
			if _, err := fragment.NamePattern(name.Value); err != nil {
				c.ReportProblem(name, sub, "%v", err)
			}
			continue
		}
		if before, twice := seen[name.Value]; twice && (!before || !conditional) {
			c.ReportProblem(name, sub, "the name %q is used twice, which is allowed only if both items have %q", name.Value, fragment.WhenKey)
		}
		seen[name.Value] = conditional
	}
}

func (c *parser) containerRules(y *yaml.Node, path string, init bool) {
	policy := yamlnode.Child(y, "restartPolicy")
	switch {
	case policy != nil && !init:
		c.ReportProblem(policy, path+".restartPolicy", "is allowed only for init containers, where Always makes a native sidecar")
	case policy != nil && policy.Value != "Always":
		c.ReportProblem(policy, path+".restartPolicy", "must be Always or left out")
	case policy == nil && init:
		c.ForbidKeys(y, path, "an init container may have this only with restartPolicy: Always",
			"livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
	}
}

// volumeKinds returns the kinds of a fragment's volumes by name. A kind is "" if two volumes of the name have different ones.
func volumeKinds(spec *yaml.Node) map[string]string {
	kinds := map[string]string{}
	if list := yamlnode.Child(spec, "volumes"); list != nil && list.Kind == yaml.ScalarNode {
		kinds[list.Value] = "" // one expression, whose volumes may have any name
	}
	for _, volume := range yamlnode.Items(yamlnode.Child(spec, "volumes")) {
		kind := "emptyDir"
		for key := range yamlnode.Members(volume) {
			if key.Value != "name" && !fragment.IsControl(key.Value) {
				kind = key.Value
			}
		}
		if volume.Kind == yaml.ScalarNode {
			kinds[volume.Value] = ""
			continue
		}
		name := yamlnode.At(volume, "name").Value
		if other, twice := kinds[name]; twice && other != kind {
			kind = ""
		}
		kinds[name] = kind
	}
	return kinds
}

// checkMounts checks references to the template's own volumes.
func (c *parser) checkMounts(container *yaml.Node, path string, volumes map[string]string) {
	seen := map[string]bool{}
	volume := func(y *yaml.Node, sub string) (kind string, ok bool) {
		name := yamlnode.Child(y, "name")
		if name == nil {
			return "", false // already reported
		}
		return c.findVolumeKind(name, sub+".name", volumes)
	}
	for i, m := range yamlnode.Items(yamlnode.Child(container, "volumeMounts")) {
		sub := fmt.Sprintf("%s.volumeMounts[%d]", path, i)
		kind, ok := volume(m, sub)
		if options := yamlnode.Child(m, "bindMountOptions"); ok && options != nil && kind == "image" {
			c.ReportProblem(options, sub+".bindMountOptions", "cannot be used with an image volume")
		}
		switch mountPath := yamlnode.Child(m, "mountPath"); {
		case mountPath == nil: // already reported
		case yamlnode.Child(m, cel.ForEachKey) != nil: // checked when it is rendered
		case seen[mountPath.Value]:
			c.ReportProblem(mountPath, sub+".mountPath", "is used by another mount of this container")
		default:
			seen[mountPath.Value] = true
		}
	}
	for i, d := range yamlnode.Items(yamlnode.Child(container, "volumeDevices")) {
		sub := fmt.Sprintf("%s.volumeDevices[%d]", path, i)
		if yamlnode.Child(d, "name") == nil {
			continue // already reported
		}
		if kind, ok := volume(d, sub); ok && kind != "persistentVolumeClaim" && kind != "ephemeral" {
			c.ReportProblem(d, sub+".name", "a device must be a volume of the kind persistentVolumeClaim or ephemeral, not %s", kind)
		}
	}
}

// findVolumeKind returns the kind of one of the template's volumes, and whether it is known. A name that is an expression may also be
// that of a volume of the pod; it is checked for each pod.
func (c *parser) findVolumeKind(name *yaml.Node, path string, volumes map[string]string) (kind string, ok bool) {
	if kind, ok = volumes[name.Value]; !ok && !fragment.MayBeOneOf(name.Value, volumes) {
		c.ReportProblem(name, path, "no volume %q in spec.pod.spec.volumes%s", name.Value, cmp.Or(problem.DidYouMean(name.Value, slices.Collect(maps.Keys(volumes))),
			fmt.Sprintf(`; for a volume of the pods themselves, write name: "${'%s'}"`, name.Value)))
	}
	return kind, kind != ""
}
