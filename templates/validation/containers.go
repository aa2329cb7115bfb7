// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

func shapesOfContainers() map[string]Shape {
	probe := Shape{One: []string{"exec", "httpGet", "tcpSocket", "grpc"}}
	readiness := probe
	readiness.Never = []string{"terminationGracePeriodSeconds"}
	return map[string]Shape{
		"PodSpec.imagePullSecrets": {Required: []string{"name"}},
		"Container":                {Never: []string{"restartPolicyRules"}},
		"ResourceRequirements":     {Never: []string{"claims"}},
		"Probe":                    probe,
		"Container.readinessProbe": readiness,
		"LifecycleHandler":         {One: []string{"exec", "httpGet", "sleep"}, Unrun: []string{"tcpSocket"}},
		"EnvVarSource":             {One: []string{"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}, Dropped: []string{"fileKeyRef"}},
		"EnvFromSource":            {One: []string{"configMapRef", "secretRef"}},
	}
}

func valuesOfContainers() map[string][]ValueRule {
	id := []ValueRule{inRange(0, 1<<31-1)}
	return map[string][]ValueRule{
		"ObjectMeta.labels":                     {isLabelValue},
		"PodSecurityContext.fsGroup":            id,
		"PodSecurityContext.supplementalGroups": id,
		"SecurityContext.runAsUser":             id,
		"SecurityContext.runAsGroup":            id,
		"Container.image":                       {isTrimmed, isImage},
		"Container.workingDir":                  {isWorkingDir},
		"Toleration.key":                        {isLabelKey},
		"HostAlias.ip":                          {isIP},
		"HostAlias.hostnames":                   {isSubdomain},
		"Container.name":                        {isName},
		"EnvVar.name":                           {isEnvName},
		"EnvFromSource.prefix":                  {orEmpty(isEnvName)},
		"ContainerPort.containerPort":           {isPort},
		"ContainerPort.hostPort":                {inRange(0, 65535)}, // 0 means none
		"ContainerPort.name":                    {orEmpty(passesCheck("", validation.IsValidPortName, "%q"))},
		"GRPCAction.port":                       {isPort},
		"HTTPHeader.name":                       {passesCheck("", validation.IsHTTPHeaderName, "%q")},
		"Probe.terminationGracePeriodSeconds":   {inRange(1, 1<<63-1)},
		"VolumeMount.subPath":                   {isRelative, hasNoBackstep},
		"VolumeMount.subPathExpr":               {isRelative, hasNoBackstep},
		"VolumeMount.bindMountOptions":          {isOneOf([]string{"noexec", "nodev", "nosuid"})},
		"VolumeDevice.devicePath":               {hasNoBackstep},
		"ContainerResizePolicy.resourceName":    {isOneOf([]string{"cpu", "memory"})},
		"LabelSelectorRequirement.key":          {isLabelKey},
		"LabelSelectorRequirement.values":       {isLabelValue},
		"ConfigMapKeySelector.name":             {isSubdomain},
		"SecretKeySelector.name":                {isSubdomain},
		"ConfigMapEnvSource.name":               {isSubdomain},
		"SecretEnvSource.name":                  {isSubdomain},
		"ConfigMapKeySelector.key":              {passesCheck("", validation.IsConfigMapKey, "%q")},
		"SecretKeySelector.key":                 {passesCheck("", validation.IsConfigMapKey, "%q")},
		"ObjectFieldSelector.apiVersion":        {isOneOf([]string{"v1"})},
		"SeccompProfile.localhostProfile":       {isRelative, hasNoBackstep},
		"AppArmorProfile.localhostProfile":      {isNotEmpty, isTrimmed, isAtMost(4095)},

		"WindowsSecurityContextOptions.gmsaCredentialSpecName": {isSubdomain},
		"WindowsSecurityContextOptions.gmsaCredentialSpec":     {isNotEmpty, isAtMost(64 << 10)},
		"WindowsSecurityContextOptions.runAsUserName":          {isNotEmpty, isWindowsUser},
	}
}

func containerRules() map[string][]ObjectRule {
	one := ObjectRule{reads: []string{"successThreshold"}, check: func(n *jsontree.Node) error {
		if s := n.Get("successThreshold"); s != nil && s.String() != "1" && s.String() != "0" {
			return errors.New("successThreshold must be 1 for this kind of probe")
		}
		return nil
	}}
	envOnce := uniqueField("env", "name")
	envOnce.own = true
	localhost := []ObjectRule{
		needsField("type", isAnyText("Localhost"), "localhostProfile", isPresent, "the type Localhost needs localhostProfile"),
		needsField("localhostProfile", isPresent, "type", isAnyText("Localhost"), "localhostProfile needs the type Localhost"),
	}
	return map[string][]ObjectRule{
		"Container": {
			uniqueField("resizePolicy", "resourceName"), uniqueField("volumeDevices", "name"), uniqueField("volumeDevices", "devicePath"), uniqueField("ports", "name"),
			{own: true, fewer: true, applies: hasTwo("ports"), reads: []string{"ports.containerPort", "ports.protocol"}, check: portsOnce},
			envOnce,
			{fewer: true, applies: mayHaveField("volumeDevices"), reads: []string{"volumeMounts.name", "volumeMounts.mountPath", "volumeDevices.name", "volumeDevices.devicePath"}, check: mountedOnce},
			{fewer: true, reads: []string{"volumeMounts.mountPropagation", "securityContext.privileged"}, check: checkBidirectional},
		},
		"PodSpec.containers": startRules(),
		"ObjectMeta":         metadataRules(),
		"PodSpec": {{reads: []string{"initContainers.name", "containers.name"}, check: oneName, applies: func(spec Partial) bool {
			return spec.ComputesNames("initContainers") || spec.ComputesNames("containers") || oneName(spec.KnownValue()) != nil
		}}},
		"PodSpec.imagePullSecrets": {hasName()},
		"PodSpec.initContainers": append(startRules(), ObjectRule{fewer: true, applies: mayHaveField("resizePolicy"), reads: []string{"restartPolicy", "resizePolicy.restartPolicy"}, check: func(n *jsontree.Node) error {
			items := n.Get("resizePolicy").Items()
			for i := range items {
				if n.Get("restartPolicy") == nil && items[i].Get("restartPolicy").IsText(string(corev1.RestartContainer)) {
					return errors.New("an init container may have resizePolicy RestartContainer only with restartPolicy: Always")
				}
			}
			return nil
		}}),
		"Container.livenessProbe": {one},
		"Container.startupProbe":  {one},
		"SeccompProfile":          localhost,
		"AppArmorProfile":         localhost,
		"SecurityContext": {
			needsField("privileged", isTrue, "allowPrivilegeEscalation", not(isFalse), "privileged: true and allowPrivilegeEscalation: false exclude each other"),
			{reads: []string{"allowPrivilegeEscalation", "capabilities.add"}, check: checkEscalation},
			notAsRoot(),
		},
		"ResourceRequirements": {{reads: []string{"limits", "requests"}, check: resourcesRule}, {own: true, reads: []string{"limits.memory"}, check: enoughMemory}},
		"VolumeMount": {
			needsField("subPathExpr", not(isAnyText("")), "subPath", isAnyText(""), "subPath and subPathExpr exclude each other"),
			needsField("recursiveReadOnly", isAnyText("Enabled", "IfPossible"), "readOnly", isTrue, "recursiveReadOnly needs readOnly: true"),
			needsField("recursiveReadOnly", isAnyText("Enabled", "IfPossible"), "mountPropagation", isAnyText("", "None"), "recursiveReadOnly needs mountPropagation: None"),
			uniqueField("bindMountOptions", ""),
		},
		"EnvVar": {needsField("valueFrom", isPresent, "value", isAnyText(""), "value and valueFrom exclude each other")},
		"HTTPGetAction": {
			needsField("protocol", isAnyText("HTTP2"), "scheme", isAnyText("", "HTTP"), "the protocol HTTP2 needs the scheme HTTP"),
			needsField("protocol", isAnyText("HTTP2"), "host", isAnyText(""), "the protocol HTTP2 takes no host"),
		},
		"Toleration": {
			needsField("key", isAnyText(""), "operator", isAnyText("Exists"), "without a key the operator must be Exists, for all taints"),
			needsField("tolerationSeconds", isPresent, "effect", isAnyText("NoExecute"), "tolerationSeconds needs the effect NoExecute"),
			needsField("operator", isAnyText("Exists"), "value", isAnyText(""), "the operator Exists takes no value"),
			{reads: []string{"operator", "value"}, check: func(n *jsontree.Node) error {
				value := n.Get("value")
				if value == nil || n.Get("operator").Text() == "Exists" {
					return nil
				}
				return isLabelValue.check(value)
			}},
		},
		"EnvVarSource.fieldRef":         {{reads: []string{"fieldPath"}, check: fieldPath("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "spec.host")}},
		"EnvVarSource.resourceFieldRef": {{reads: []string{"resource", "divisor"}, check: resourceField}},
	}
}

// MaxAnnotations is the maximum size of an object's annotations in bytes, keys included
// (TotalAnnotationSizeLimitB in k8s.io/apimachinery).
const MaxAnnotations = 256 << 10

func metadataRules() []ObjectRule {
	return []ObjectRule{{reads: []string{"annotations." + corev1.PodDeletionCost}, check: func(n *jsontree.Node) error {
		cost := n.At("annotations", corev1.PodDeletionCost)
		if _, err := strconv.ParseInt(cost.Text(), 10, 32); cost != nil && err != nil {
			return fmt.Errorf("the annotation %s must be an integer of 32 bits", corev1.PodDeletionCost)
		}
		return nil
	}}, {check: func(n *jsontree.Node) error {
		size := 0
		annotations := n.Get("annotations").Members()
		for i := range annotations {
			size += len(annotations[i].Name()) + len(annotations[i].Text())
		}
		if size > MaxAnnotations {
			return fmt.Errorf("has %d bytes of annotations, and a pod may have %d", size, MaxAnnotations)
		}
		return nil
	}}}
}

// oneName rejects two containers of a pod with the same name.
func oneName(spec *jsontree.Node) error {
	all := slices.Concat(spec.Get("initContainers").Items(), spec.Get("containers").Items())
	if name := findDuplicate(all, "name"); name != "" {
		return fmt.Errorf("two containers have the name %q", name)
	}
	return nil
}

// mountedOnce rejects a volume that a container both mounts and uses as a device.
func mountedOnce(n *jsontree.Node) error {
	mounts, devices := n.Get("volumeMounts").Items(), n.Get("volumeDevices").Items()
	if len(mounts) == 0 || len(devices) == 0 {
		return nil
	}
	names, paths := map[string]bool{}, map[string]bool{}
	for i := range devices {
		names[devices[i].Get("name").Text()], paths[devices[i].Get("devicePath").Text()] = true, true
	}
	for i := range mounts {
		if name := mounts[i].Get("name").Text(); names[name] {
			return fmt.Errorf("the volume %s is in volumeMounts and in volumeDevices; it can be in one of them", name)
		}
		if path := mounts[i].Get("mountPath").Text(); paths[path] {
			return fmt.Errorf("%s is in volumeMounts and in volumeDevices; it can be in one of them", path)
		}
	}
	return nil
}

// portsOnce rejects a port with two names. The API server warns of the second one, and removes one
// of the ports if such a pod is applied.
func portsOnce(n *jsontree.Node) error {
	seen := map[string]bool{}
	ports := n.Get("ports").Items()
	for i := range ports {
		protocol := ports[i].Get("protocol").Text()
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		number := ports[i].Get("containerPort")
		if number == nil {
			continue
		}
		key := number.String() + "/" + protocol
		if seen[key] {
			return fmt.Errorf("ports has %s twice; give the port one name", key)
		}
		seen[key] = true
	}
	return nil
}

func checkBidirectional(n *jsontree.Node) error {
	mounts := n.Get("volumeMounts").Items()
	for i := range mounts {
		if mounts[i].Get("mountPropagation").Text() == string(corev1.MountPropagationBidirectional) && !isTrue(n.At("securityContext", "privileged")) {
			return fmt.Errorf("the mount at %s has mountPropagation Bidirectional, which needs a privileged container", mounts[i].Get("mountPath").Text())
		}
	}
	return nil
}

func checkEscalation(n *jsontree.Node) error {
	added := n.At("capabilities", "add").Items()
	if isFalse(n.Get("allowPrivilegeEscalation")) && slices.ContainsFunc(added, func(c jsontree.Node) bool { return c.IsText("CAP_SYS_ADMIN") }) {
		return errors.New("the capability CAP_SYS_ADMIN and allowPrivilegeEscalation: false exclude each other")
	}
	return nil
}

// resourcesRule checks the names and quantities of a container's resources.
func resourcesRule(n *jsontree.Node) error {
	pages, compute := false, false
	for _, section := range []string{"limits", "requests"} {
		members := n.Get(section).Members()
		for i := range members {
			name := members[i].Name()
			if err := resourceRule(n, section, &members[i]); err != nil {
				return err
			}
			pages = pages || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
			compute = compute || name == "cpu" || name == "memory"
		}
	}
	if pages && !compute {
		return errors.New("huge pages need cpu or memory beside them")
	}
	return nil
}

func resourceRule(n *jsontree.Node, section string, value *jsontree.Node) error {
	name := value.Name()
	q, err := quantityOf(value)
	if err != nil {
		return nil //nolint:nilerr // the value's own rule reports it
	}
	page, pages := strings.CutPrefix(name, corev1.ResourceHugePagesPrefix)
	extended := strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/")
	switch {
	case pages:
		size, err := values.ParseQuantity(page)
		if err != nil || size.Sign() <= 0 || q.Value()%size.Value() != 0 {
			return fmt.Errorf("%s: %s is not a number of pages of that size", name, q.String())
		}
	case strings.Contains(name, "/"):
		if len(validation.IsQualifiedName(name)) > 0 || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) || len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) > 0 {
			return fmt.Errorf("%q is not the name of a resource", name)
		}
	case name != "cpu" && name != "memory" && name != "ephemeral-storage":
		return fmt.Errorf("%q is not a resource of a container; it must be cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME", name)
	}
	if extended && q.MilliValue()%1000 != 0 {
		return fmt.Errorf("%s must be an integer, not %s", name, q.String())
	}
	if section == "limits" {
		return nil
	}
	limit := n.At("limits", name)
	if limit == nil {
		if pages || extended {
			return fmt.Errorf("the request of %s needs an equal limit", name)
		}
		return nil
	}
	most, err := quantityOf(limit)
	if c := q.Cmp(most); err == nil && (c > 0 || c < 0 && (pages || extended)) {
		if c > 0 {
			return fmt.Errorf("the request of %s (%s) is more than its limit (%s)", name, q.String(), most.String())
		}
		return fmt.Errorf("the request of %s (%s) must equal its limit (%s)", name, q.String(), most.String())
	}
	return nil
}

// fieldPath returns a rule for the field in a fieldRef.
func fieldPath(allowed ...string) func(*jsontree.Node) error {
	return func(n *jsontree.Node) error {
		text := n.Get("fieldPath").Text()
		if slices.Contains(allowed, text) {
			return nil
		}
		path, key, ok := strings.Cut(strings.TrimSuffix(text, "']"), "['")
		if ok && strings.HasSuffix(text, "']") && (path == "metadata.labels" || path == "metadata.annotations") {
			if path == "metadata.annotations" {
				key = strings.ToLower(key)
			}
			if errs := validation.IsQualifiedName(key); len(errs) > 0 {
				return fmt.Errorf("%q is not a valid key: %s", key, problem.TrimPattern(errs[0]))
			}
			return nil
		}
		return fmt.Errorf("a fieldRef cannot name %q here; it may name metadata.labels['KEY'], metadata.annotations['KEY'], %s", text, strings.Join(allowed, ", "))
	}
}

// resourceField checks a resourceFieldRef.
func resourceField(n *jsontree.Node) error {
	text := n.Get("resource").Text()
	section, name, _ := strings.Cut(text, ".")
	pages := strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	if section != "limits" && section != "requests" || name != "cpu" && name != "memory" && name != "ephemeral-storage" && !pages {
		return fmt.Errorf("a resourceFieldRef cannot name %q; it may name limits or requests of cpu, memory, ephemeral-storage or hugepages-SIZE", text)
	}
	divisor := n.Get("divisor")
	q, err := quantityOf(divisor)
	if divisor == nil || err != nil || q.IsZero() {
		return nil //nolint:nilerr // the value's own rule reports it
	}
	allowed := strings.Fields("1 1k 1M 1G 1T 1P 1E 1Ki 1Mi 1Gi 1Ti 1Pi 1Ei")
	if name == "cpu" {
		allowed = []string{"1m", "1"}
	}
	if !slices.Contains(allowed, q.String()) {
		return fmt.Errorf("the divisor of %s must be one of %s", text, strings.Join(allowed, ", "))
	}
	return nil
}

var isWindowsUser = textRule("", func(s string) bool {
	domain, user, both := strings.Cut(s, `\`)
	if !both {
		domain, user = "", domain
	}
	const forbidden = "\"/\\:;|=,+*?<>@[]"
	switch {
	case user == "" || len(user) > 104 || strings.ContainsAny(user, forbidden) || strings.Trim(user, ". ") == "",
		strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }),
		both && (len(domain) > 255 || len(validation.IsDNS1123Subdomain(strings.ToLower(domain))) > 0):
		return false
	}
	return true
}, "%q is not the name of a Windows user: [DOMAIN\\]USER")
