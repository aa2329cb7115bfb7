// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// fields is what a fragment may set: nil for anything, else field by field.
type fields map[string]fields

// podFields leave out what scheduling and earlier admission plugins have
// decided by the time a webhook is called.
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

// forEachFields leave out what says which program an app container runs, and how.
func forEachFields() fields {
	return fields{
		"env": nil, "envFrom": nil, "volumeMounts": nil, "volumeDevices": nil, "ports": nil,
		"resources": nil, "securityContext": nil, "lifecycle": nil,
		"terminationMessagePath": nil, "terminationMessagePolicy": nil,
	}
}

func (c *checker) only(y *yaml.Node, path string, allowed fields) {
	if y.Kind != yaml.MappingNode || allowed == nil {
		return
	}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		sub, ok := allowed[key.Value]
		if !ok && key.Value != whenKey {
			c.problem(key, join(path, key.Value), "a template may not set this; it may set %s",
				strings.Join(slices.Sorted(maps.Keys(allowed)), ", "))
			continue
		}
		c.only(y.Content[i+1], join(path, key.Value), sub)
	}
}

// podRules checks what the types do not say of a pod fragment: the rules of the
// API server's validation that a fragment alone can break.
// It returns the names of the containers.
func (c *checker) podRules(y *yaml.Node, path string) (names []string) {
	c.only(y, path, podFields())
	c.keys(child(child(y, "metadata"), "annotations"), path+".metadata.annotations", func(_, prefix string) string {
		if within(prefix, Domain) {
			return "keys of " + Domain + " belong to Pillion and to those who write pods; a template may not set them"
		}
		return ""
	})
	spec := child(y, "spec")
	volumes := c.names(child(spec, "volumes"), path+".spec.volumes", map[string]bool{})
	for i, volume := range items(child(spec, "volumes")) {
		c.oneSource(volume, fmt.Sprintf("%s.spec.volumes[%d]", path, i))
	}
	seen := map[string]bool{}
	for _, list := range []string{"initContainers", "containers"} {
		containers := child(spec, list)
		c.names(containers, path+".spec."+list, seen)
		for i, container := range items(containers) {
			sub := fmt.Sprintf("%s.spec.%s[%d]", path, list, i)
			c.containerRules(container, sub, list == "initContainers")
			c.mounts(container, sub, volumes)
			c.ports(container, sub)
			c.resources(container, sub)
			c.named(container, sub, "env")
			names = append(names, at(container, "name").Value)
		}
	}
	return names
}

func (c *checker) forEachRules(y *yaml.Node, path string, pod *yaml.Node) {
	c.only(y, path, forEachFields())
	volumes := map[string]bool{}
	for _, v := range items(child(child(pod, "spec"), "volumes")) {
		volumes[at(v, "name").Value] = true
	}
	c.mounts(y, path, volumes)
	c.ports(y, path)
	c.resources(y, path)
	c.named(y, path, "env")
}

// keys checks the keys of labels or annotations; wrong is what else is wrong with one.
func (c *checker) keys(y *yaml.Node, path string, wrong func(key, prefix string) string) {
	if y == nil || y.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if errs := validation.IsQualifiedName(strings.ToLower(key.Value)); len(errs) > 0 {
			c.problem(key, join(path, key.Value), "not a valid key: %s", brief(errs[0]))
			continue
		}
		prefix, _, ok := strings.Cut(key.Value, "/")
		if !ok {
			prefix = ""
		}
		if message := wrong(key.Value, prefix); message != "" {
			c.problem(key, join(path, key.Value), "%s", message)
		}
	}
}

// within reports whether a key's prefix is the domain or below it.
func within(prefix, domain string) bool {
	return prefix == domain || strings.HasSuffix(prefix, "."+domain)
}

// reservedDomains are domains whose labels mean something to Kubernetes or to Pillion.
func reservedDomains() []string { return []string{"kubernetes.io", "k8s.io", Domain} }

// labels checks the keys of labels. What makes a pod selects its pods by labels: if a
// template adds one that its selector excludes, it never finds the pod that it made,
// and makes the next.
func (c *checker) labels(y *yaml.Node, t *Template) {
	list := at(y, "spec", "labelDomains")
	for i, domain := range t.Spec.LabelDomains {
		path := fmt.Sprintf("spec.labelDomains[%d]", i)
		switch taken := slices.IndexFunc(reservedDomains(), func(d string) bool { return within(domain, d) }); {
		case taken >= 0:
			c.problem(list.Content[i], path, "labels of %s are not a template's to set", reservedDomains()[taken])
		case !strings.Contains(domain, ".") || len(validation.IsDNS1123Subdomain(domain)) > 0:
			c.problem(list.Content[i], path, "must be a domain such as example.com, without a slash")
		}
	}
	own := t.Name + "." + Domain
	c.keys(child(at(y, "spec", "pod", "metadata"), "labels"), "spec.pod.metadata.labels", func(key, prefix string) string {
		name := key[strings.LastIndexByte(key, '/')+1:]
		instead := fmt.Sprintf("use the template's own %s/%s", own, name)
		switch {
		case prefix == own:
			return ""
		case prefix == "":
			return "a template may not set a label without a prefix: what makes pods may select by it, and make pods without end; " + instead
		case slices.ContainsFunc(reservedDomains(), func(d string) bool { return within(prefix, d) }):
			return "labels of kubernetes.io, k8s.io and pillion.dev are not a template's to set; " + instead
		case !slices.ContainsFunc(t.Spec.LabelDomains, func(d string) bool { return within(prefix, d) }):
			return fmt.Sprintf("a template may set labels of its own prefix alone; %s, or, if no selector of a workload has the label, name its domain in spec.labelDomains", instead)
		}
		return ""
	})
}

// brief leaves out the regular expression that Kubernetes' messages end with.
func brief(message string) string {
	message, _, _ = strings.Cut(message, " (e.g.")
	return message
}

// names checks the names of a list of containers or volumes, and returns them:
// constant, because a name that differs from run to run would be added twice.
func (c *checker) names(list *yaml.Node, path string, seen map[string]bool) map[string]bool {
	for i, item := range items(list) {
		sub := fmt.Sprintf("%s[%d].name", path, i)
		name := child(item, "name")
		switch {
		case name == nil:
			c.problem(item, sub, "is missing")
		case strings.Contains(name.Value, "${"):
			c.problem(name, sub, "must be constant: the name says which of the pod's items is meant")
		case !regexp.MustCompile(dnsLabel).MatchString(name.Value):
			c.problem(name, sub, "must be a DNS label: at most 63 of a-z, 0-9 and -")
		case seen[name.Value]:
			c.problem(name, sub, "the name %q is used twice", name.Value)
		case strings.HasSuffix(path, ".volumes") && (strings.HasPrefix(name.Value, "kube-api-access-") || name.Value == "pillion-no-token"):
			c.problem(name, sub, "the name %q is taken: volumes of the API token have it", name.Value)
		default:
			seen[name.Value] = true
		}
	}
	return seen
}

func (c *checker) containerRules(y *yaml.Node, path string, init bool) {
	switch image := child(y, "image"); {
	case image == nil:
		c.problem(y, path+".image", "is missing")
	case !strings.Contains(image.Value, "${") && strings.ContainsAny(strings.TrimSpace(image.Value), " \t\r\n"):
		c.problem(image, path+".image", "must have no spaces")
	}
	policy := child(y, "restartPolicy")
	switch {
	case policy != nil && !init:
		c.problem(policy, path+".restartPolicy", "may stand only on init containers, where Always makes a native sidecar")
	case policy != nil && policy.Value != "Always":
		c.problem(policy, path+".restartPolicy", "must be Always or left out")
	case policy == nil && init:
		for _, key := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
			if found := child(y, key); found != nil {
				c.problem(found, path+"."+key, "an init container may have this only with restartPolicy: Always")
			}
		}
	}
}

func (c *checker) mounts(container *yaml.Node, path string, volumes map[string]bool) {
	seen := map[string]bool{}
	for i, m := range items(child(container, "volumeMounts")) {
		sub := fmt.Sprintf("%s.volumeMounts[%d]", path, i)
		name, mountPath := child(m, "name"), child(m, "mountPath")
		switch {
		case name == nil:
			c.problem(m, sub+".name", "is missing")
		case !volumes[name.Value]:
			c.problem(name, sub+".name", "no volume %q in spec.pod.spec.volumes%s", name.Value,
				didYouMean(name.Value, slices.Collect(maps.Keys(volumes))))
		}
		switch {
		case mountPath == nil:
			c.problem(m, sub+".mountPath", "is missing")
		case seen[mountPath.Value]:
			c.problem(mountPath, sub+".mountPath", "is used by another mount of this container")
		default:
			seen[mountPath.Value] = true
		}
	}
}

func (c *checker) ports(container *yaml.Node, path string) {
	seen := map[string]bool{}
	for i, p := range items(child(container, "ports")) {
		sub := fmt.Sprintf("%s.ports[%d]", path, i)
		if child(p, "containerPort") == nil {
			c.problem(p, sub+".containerPort", "is missing")
		}
		name := child(p, "name")
		if name == nil || strings.Contains(name.Value, "${") {
			continue
		}
		if errs := validation.IsValidPortName(name.Value); len(errs) > 0 {
			c.problem(name, sub+".name", "not a valid port name: %s", brief(errs[0]))
		}
		if seen[name.Value] {
			c.problem(name, sub+".name", "the name %q is used twice", name.Value)
		}
		seen[name.Value] = true
	}
}

// oneSource finds a volume of two kinds. One of none is an emptyDir to the API server.
func (c *checker) oneSource(volume *yaml.Node, path string) {
	source := ""
	for i := 0; volume.Kind == yaml.MappingNode && i+1 < len(volume.Content); i += 2 {
		switch key := volume.Content[i]; {
		case key.Value == "name" || key.Value == whenKey:
		case source != "":
			c.problem(key, join(path, key.Value), "a volume is of one kind, and this one has %s already", source)
		default:
			source = key.Value
		}
	}
}

// resources finds a constant request that is more than its limit, which no pod may have.
func (c *checker) resources(container *yaml.Node, path string) {
	requests := child(child(container, "resources"), "requests")
	for i := 0; requests != nil && requests.Kind == yaml.MappingNode && i+1 < len(requests.Content); i += 2 {
		name, request := requests.Content[i].Value, requests.Content[i+1]
		limit := child(child(child(container, "resources"), "limits"), name)
		if limit == nil {
			continue
		}
		asked, errA := ParseQuantity(request.Value)
		most, errB := ParseQuantity(limit.Value)
		if errA == nil && errB == nil && asked.Cmp(most) > 0 {
			c.problem(request, path+".resources.requests."+name, "is %s, more than its limit, %s", request.Value, limit.Value)
		}
	}
}

// named checks that each item of a list has a name, and each name one item.
func (c *checker) named(container *yaml.Node, path, list string) {
	seen := map[string]bool{}
	for i, item := range items(child(container, list)) {
		sub := fmt.Sprintf("%s.%s[%d].name", path, list, i)
		name := child(item, "name")
		switch {
		case name == nil:
			c.problem(item, sub, "is missing")
		case seen[name.Value]:
			c.problem(name, sub, "the name %q is used twice", name.Value)
		default:
			seen[name.Value] = true
		}
	}
}

// items are the items of a sequence.
func items(y *yaml.Node) []*yaml.Node {
	if y == nil || y.Kind != yaml.SequenceNode {
		return nil
	}
	return y.Content
}
