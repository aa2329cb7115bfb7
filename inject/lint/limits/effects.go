// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
)

// Kubernetes gives a meaning to what a pod does not have. So an addition can change what happens to the parts of the pod that
// it does not touch.

// Effect is such a change.
type Effect struct {
	// Absent is what the pod does not have, and Meaning what that means, in the words of the documentation.
	Absent, Meaning string
	// Changes is what an addition changes, in the words of the documentation.
	Changes string
	// Source is where the behavior is implemented.
	Source string

	// of returns a sentence for each change.
	of func(change) []string
	// inTrial reports whether a [Trial] has a sentence of its own for it.
	inTrial bool
}

// change is a pod without and with the additions of templates.
type change struct {
	before, after *corev1.Pod // with the API server's defaults
	kind          string      // of the workload, or of the controller of the pod; "" if there is none
	isSample      bool        // the sentences are about pods like it, so they do not have what only this one has
}

// Effects returns all effects, in the order in which they are reported.
func Effects() []Effect { return effects }

var effects = []Effect{
	{
		Absent: "a request or a limit of cpu or memory", Meaning: "the quality of service class of the pod",
		Changes: "a Guaranteed or BestEffort pod becomes Burstable, so it is killed earlier or later if the node has too little memory",
		Source:  "`pkg/apis/core/v1/helper/qos`", of: changeOfQoS, inTrial: true,
	},
	{
		Absent: "a limit of ephemeral-storage", Meaning: "what a container writes has no limit",
		Changes: "the kubelet compares what the whole pod writes with the sum of the limits that exist, and evicts the pod",
		Source:  "`pkg/kubelet/eviction/eviction_manager.go`", of: limitOfStorage,
	},
	{
		Absent: "an `emptyDir`", Meaning: "`kubectl drain` removes the pod",
		Changes: "`kubectl drain` stops unless it has the flag `--delete-emptydir-data`",
		Source:  "`k8s.io/kubectl/pkg/drain/filters.go`", of: stopsDrain,
	},
	{
		Absent: "local storage (`emptyDir` or `hostPath`)", Meaning: "the cluster autoscaler may remove the pod's node",
		Changes: "it keeps the node, unless the annotation `" + inject.SafeToEvictLocalVolumes + "` lists the volume",
		Source:  "`cluster-autoscaler/utils/drain/drain.go` in kubernetes/autoscaler", of: keepsNode,
	},
	{
		Absent: "a container without a request of cpu or memory", Meaning: "a HorizontalPodAutoscaler can compute which part of its requests the pod uses",
		Changes: "the HorizontalPodAutoscaler cannot compute it, and does not scale by it",
		Source:  "`pkg/controller/podautoscaler/replica_calculator.go`", of: failsAutoscaling,
	},
	{
		Absent: "another port with a name", Meaning: "a Service that names its target port finds the app's port",
		Changes: "the Service sends to the first container that has a port of that name",
		Source:  "`k8s.io/endpointslice/utils.go`", of: movesPort,
	},
	{
		Absent: "another first container, or the annotation `kubectl.kubernetes.io/default-container`", Meaning: "`kubectl logs` and `kubectl exec` choose the app's container",
		Changes: "they choose another container",
		Source:  "`k8s.io/kubectl/pkg/cmd/util/podcmd/podcmd.go`", of: changesDefault,
	},
	{
		Absent: "`securityContext.fsGroup` of the pod", Meaning: "volumes keep their owner",
		Changes: "the kubelet gives the files in volumes to the group, and all containers are in it",
		Source:  "`pkg/volume/volume_linux.go`", of: ownsVolumes,
	},
	{
		Absent: "`shareProcessNamespace`", Meaning: "the first process of each container has the number 1",
		Changes: "it has another number, and containers see each other's processes and files",
		Source:  "`pkg/kubelet/kuberuntime/util/util.go`", of: sharesProcesses,
	},
	{
		Absent: "another container that keeps running", Meaning: "the pod of a Job ends with the app's containers",
		Changes: "it runs until a container that the template adds to `containers` ends, too",
		Source:  "`pkg/kubelet/kubelet_pods.go`", of: delaysEnd,
	},
	{
		Absent: "a label", Meaning: "selectors that exclude the label match the pod",
		Changes: "they do not match it any more. If the selector is that of the pod's own workload, and known, it is a [conflict](template-reference.md#labels)",
		Source:  "`k8s.io/apimachinery/pkg/labels`", of: leavesSelectors, inTrial: true,
	},
	{
		Absent: "a variable that a variable of the app names, as in `http://$(AGENT_HOST)`", Meaning: "the app reads `$(AGENT_HOST)` literally",
		Changes: "it still does: a variable sees only those before it, and the variables of templates come last. In `command` and `args`, it works",
		Source:  "`pkg/kubelet/kubelet_pods.go`", of: comesTooLate,
	},
	{
		Absent: "a container, and the pod's node affinity or runtime class is for another operating system", Meaning: "the pod runs there",
		Changes: "the container is for Linux, and does not run there: only `spec.os.name` and `spec.nodeSelector` show Pillion what a pod is for",
		Source:  "`plugin/pkg/admission/runtimeclass`", of: missesSystem,
	},
}

// EffectsOf returns what additions change for the rest of a pod, one sentence for each change. The pods are JSON, without and
// with the additions; the kind is that of the workload, or "" for a pod. If one cannot be decoded, it returns nil.
func EffectsOf(before, after []byte, kind string) (all []string) {
	var was, is corev1.Pod
	if isAbsurd(before) || isAbsurd(after) || json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil {
		return nil
	}
	c := newChange(&was, &is, kind)
	for i := range effects {
		all = append(all, effects[i].of(c)...)
	}
	return all
}

// newChange returns a change of a pod, given the kind of the workload, or "Pod" or "" for a pod.
func newChange(before, after *corev1.Pod, kind string) change {
	if kind == "Pod" {
		kind = ""
	}
	if owner := metav1.GetControllerOf(before); owner != nil {
		kind = owner.Kind
	}
	return change{before: withDefaults(before), after: withDefaults(after), kind: kind}
}

// ofSample returns the change of a sample pod.
func ofSample(before, after *corev1.Pod, kind string) change {
	c := newChange(before, after, kind)
	c.isSample = true
	return c
}

// ownSidecar is the name of the native sidecar of a sample.
const ownSidecar = "own-sidecar"

// oneSentence returns one sentence.
func oneSentence(format string, args ...any) []string { return []string{fmt.Sprintf(format, args...)} }

func changeOfQoS(c change) []string {
	was, is := QoS(c.before), QoS(c.after)
	if was == is {
		return nil
	}
	return oneSentence("the quality of service class of the pod is %s instead of %s, because %s", is, was, qosWhy(c.after, was))
}

func limitOfStorage(c change) []string {
	const storage = corev1.ResourceEphemeralStorage
	_, was := totalResources(c.before, limitsOf)[storage]
	limit, is := totalResources(c.after, limitsOf)[storage]
	if !is {
		return nil
	}
	if !was {
		return oneSentence("the kubelet evicts the pod if all of its containers and emptyDir volumes together use more than %s of ephemeral-storage, because only templates set such a limit", &limit)
	}
	unlimited := namesOf(c.addedContainers(runningContainers), func(c *corev1.Container) bool { return lacksResource(c.Resources.Limits, storage) })
	if len(unlimited) == 0 {
		return nil
	}
	return oneSentence("the kubelet evicts the pod if it uses more than %s of ephemeral-storage, which includes %s without a limit", &limit, listNames("the container", unlimited))
}

func lacksResource(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, has := list[name]
	return !has
}

// namesOf returns the names of the containers that a function selects.
func namesOf(all []*corev1.Container, is func(*corev1.Container) bool) (some []string) {
	for _, c := range all {
		if is(c) {
			some = append(some, c.Name)
		}
	}
	return some
}

// listNames returns "the container a", or "the containers a and b".
func listNames(noun string, names []string) string {
	if len(names) > 1 {
		noun += "s"
	}
	return noun + " " + joinNames(names)
}

// joinNames joins names: "a, b and c".
func joinNames(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// addedContainers returns the containers of templates among those that a function returns for a pod.
func (c change) addedContainers(of func(*corev1.Pod) []*corev1.Container) (all []*corev1.Container) {
	known := map[string]bool{}
	for _, container := range of(c.before) {
		known[container.Name] = true
	}
	for _, container := range of(c.after) {
		if !known[container.Name] {
			all = append(all, container)
		}
	}
	return all
}

// runningContainers returns the containers that run as long as the pod: containers, and then native sidecars.
func runningContainers(pod *corev1.Pod) (all []*corev1.Container) {
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

func stopsDrain(c change) []string {
	was, is := volumeNames(c.before, isEmptyDir), volumeNames(c.after, isEmptyDir)
	if len(was) > 0 || len(is) == 0 || c.kind == "DaemonSet" {
		return nil
	}
	return oneSentence("kubectl drain removes the pod only with the flag --delete-emptydir-data, because of the emptyDir %s", joinNames(is))
}

func isEmptyDir(v *corev1.Volume) bool { return v.EmptyDir != nil }

// isLocal reports whether the cluster autoscaler keeps a node because of a volume.
func isLocal(v *corev1.Volume) bool {
	return v.HostPath != nil || v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory
}

func volumeNames(pod *corev1.Pod, is func(*corev1.Volume) bool) (names []string) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; is(v) {
			names = append(names, v.Name)
		}
	}
	return names
}

func keepsNode(c change) []string {
	if c.kind == "DaemonSet" || c.kind == "" { // it leaves these alone, or keeps the node for any pod without a controller
		return nil
	}
	const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict" // for all of the pod
	if said := c.after.Annotations[safeToEvict]; said == "true" || said == "false" {
		return nil
	}
	blocking := func(pod *corev1.Pod) []string {
		safe := map[string]bool{}
		for name := range strings.SplitSeq(pod.Annotations[inject.SafeToEvictLocalVolumes], ",") { // the autoscaler does not trim names
			safe[name] = true
		}
		return volumeNames(pod, func(v *corev1.Volume) bool { return isLocal(v) && !safe[v.Name] })
	}
	is := blocking(c.after)
	if len(blocking(c.before)) > 0 || len(is) == 0 {
		return nil
	}
	them := "it"
	if len(is) > 1 {
		them = "them"
	}
	return oneSentence("the cluster autoscaler keeps the pod's node because of the local %s, unless the annotation %s lists %s", listNames("volume", is), inject.SafeToEvictLocalVolumes, them)
}

// isScaled reports whether a HorizontalPodAutoscaler can scale the workload.
func (c change) isScaled() bool {
	return !slices.Contains([]string{"", "CronJob", "DaemonSet", "Job"}, c.kind)
}

func failsAutoscaling(c change) (all []string) {
	if !c.isScaled() || c.after.Spec.Resources != nil && len(c.after.Spec.Resources.Requests) > 0 { // those of the pod count
		return nil
	}
	lacking := func(pod *corev1.Pod, names ...corev1.ResourceName) []string {
		return namesOf(runningContainers(pod), func(c *corev1.Container) bool {
			return slices.ContainsFunc(names, func(name corev1.ResourceName) bool { return lacksResource(c.Resources.Requests, name) })
		})
	}
	var resources []corev1.ResourceName
	var requests []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if len(lacking(c.before, name)) == 0 && len(lacking(c.after, name)) > 0 {
			resources, requests = append(resources, name), append(requests, string(name))
		}
	}
	if len(resources) == 0 {
		return nil
	}
	requested := strings.Join(requests, " or ")
	return oneSentence("a HorizontalPodAutoscaler cannot scale by the utilization of %s, because there is no request of %s for %s, unless a LimitRange sets it",
		requested, requested, listNames("the container", lacking(c.after, resources...)))
}

// targetPort is what a Service names.
type targetPort struct {
	name     string
	protocol corev1.Protocol
}

// foundPort is the port that a Service finds.
type foundPort struct {
	number    int32
	container string
}

// targetPorts returns what a Service finds for each named port of a pod, and the names in order. The first container counts.
func targetPorts(pod *corev1.Pod) (order []targetPort, found map[targetPort]foundPort) {
	found = map[targetPort]foundPort{}
	for _, c := range runningContainers(pod) {
		for _, p := range c.Ports {
			name := targetPort{p.Name, cmp.Or(p.Protocol, corev1.ProtocolTCP)}
			if _, known := found[name]; known || p.Name == "" {
				continue
			}
			order, found[name] = append(order, name), foundPort{p.ContainerPort, c.Name}
		}
	}
	return order, found
}

func movesPort(c change) (all []string) {
	order, before := targetPorts(c.before)
	_, after := targetPorts(c.after)
	for _, name := range order {
		was := before[name]
		is, found := after[name]
		if !found || is.number == was.number { // all containers have the same address
			continue
		}
		other := fmt.Sprintf("%d of %s", was.number, was.container)
		switch {
		case c.isSample && was.container == ownSidecar:
			other = "the port of that name of a native sidecar of the pod"
		case c.isSample:
			other = "the port of that name of a container of the pod"
		}
		all = append(all, fmt.Sprintf("a Service whose targetPort is %s sends to the port %d of the container %s instead of %s, because the first container with a port of that name counts",
			name.name, is.number, is.container, other))
	}
	return all
}

func changesDefault(c change) []string {
	chosen := func(pod *corev1.Pod) string {
		if said := pod.Annotations["kubectl.kubernetes.io/default-container"]; said != "" {
			return said
		}
		if len(pod.Spec.Containers) == 0 {
			return ""
		}
		return pod.Spec.Containers[0].Name
	}
	was, is := chosen(c.before), chosen(c.after)
	if was == "" || was == is {
		return nil
	}
	return oneSentence("kubectl logs and kubectl exec choose the container %s instead of %s", is, was)
}

func ownsVolumes(c change) []string {
	group := func(pod *corev1.Pod) *int64 {
		if pod.Spec.SecurityContext == nil {
			return nil
		}
		return pod.Spec.SecurityContext.FSGroup
	}
	if is := group(c.after); group(c.before) == nil && is != nil {
		return oneSentence("the kubelet gives the files in the pod's volumes to the group %d, and all containers are in it", *is)
	}
	return nil
}

func sharesProcesses(c change) []string {
	shares := func(pod *corev1.Pod) bool {
		return pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace
	}
	if shares(c.before) || !shares(c.after) {
		return nil
	}
	return oneSentence("the first process of a container does not have the number 1, and containers see each other's processes and files, because of shareProcessNamespace")
}

func delaysEnd(c change) []string {
	if policy := c.after.Spec.RestartPolicy; policy == "" || policy == corev1.RestartPolicyAlways {
		return nil
	}
	sidecars := map[string]bool{}
	for i := range c.after.Spec.InitContainers {
		sidecars[c.after.Spec.InitContainers[i].Name] = true
	}
	whole := namesOf(c.addedContainers(runningContainers), func(added *corev1.Container) bool { return !sidecars[added.Name] })
	if len(whole) == 0 {
		return nil
	}
	of := ""
	if c.isSample {
		of = " of a Job"
	}
	return oneSentence("the pod%s does not end before %s, because only native sidecars end with it", of, listNames("the container", whole))
}

// leavesSelectors is about labels that other objects may select by. Other objects do not know those with the template's own prefix.
func leavesSelectors(c change) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(c.after.Labels)) {
		prefix, _, _ := strings.Cut(key, "/")
		if _, was := c.before.Labels[key]; !was && !strings.HasSuffix(prefix, "."+templates.Domain) {
			all = append(all, fmt.Sprintf("selectors that exclude the label %s=%s, for example of a Service or a NetworkPolicy, do not match the pod any more", key, c.after.Labels[key]))
		}
	}
	return all
}

// comesTooLate is about variables of the app that name a variable of a template. The kubelet expands a variable by those before it.
func comesTooLate(c change) (all []string) {
	if c.isSample {
		return nil
	}
	before := map[string]*corev1.Container{}
	for container := range allContainers(c.before) {
		before[container.Name] = container
	}
	for container := range allContainers(c.after) {
		if own := before[container.Name]; own != nil && len(container.Env) > len(own.Env) {
			all = append(all, lateVariables(own, container)...)
		}
	}
	return all
}

// lateVariables is comesTooLate for one container.
func lateVariables(before, after *corev1.Container) []string {
	own := map[string]bool{}
	for i := range before.Env {
		own[before.Env[i].Name] = true
	}
	first := map[string]int{} // where the variables of templates are
	for i := range slices.Backward(after.Env) {
		if name := after.Env[i].Name; !own[name] {
			first[name] = i
		}
	}
	var readers, late []string
	for i := range after.Env {
		v := &after.Env[i]
		if !own[v.Name] {
			continue
		}
		for name := range variablesIn(v.Value) {
			if at, added := first[name]; added && at > i {
				readers, late = append(readers, v.Name), append(late, name)
			}
		}
	}
	if len(late) == 0 {
		return nil
	}
	readers, late = sortedUnique(readers), sortedUnique(late)
	verb := "does"
	if len(readers) > 1 {
		verb = "do"
	}
	return oneSentence("%s of the container %s %s not see %s, because a variable sees only those before it, and the variables of templates come last; use $(%s) in command or args",
		listNames("the variable", readers), after.Name, verb, joinNames(late), late[0])
}

func sortedUnique(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// allContainers returns the init containers and the containers of a pod.
func allContainers(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// variablesIn returns the names that a value refers to as $(NAME). $$ is a literal $.
func variablesIn(value string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, m := range reference.FindAllStringSubmatch(value, -1) {
			if m[1] != "" && !yield(m[1]) {
				return
			}
		}
	}
}

var reference = regexp.MustCompile(`\$\$|\$\(([^()]+)\)`)

// missesSystem is about pods that count as pods for Linux, but probably are for another operating system.
func missesSystem(c change) []string {
	added := namesOf(c.addedContainers(func(pod *corev1.Pod) []*corev1.Container { return slices.Collect(allContainers(pod)) }), func(*corev1.Container) bool { return true })
	if c.isSample || len(added) == 0 || c.before.Spec.OS != nil || slices.ContainsFunc(osLabels(), func(label string) bool { return c.before.Spec.NodeSelector[label] != "" }) {
		return nil
	}
	why := ""
	if name := ptr.Deref(c.before.Spec.RuntimeClassName, ""); strings.Contains(strings.ToLower(name), string(corev1.Windows)) {
		why = "the runtime class " + name
	}
	if selectsOther(c.before) {
		why = "the node affinity"
	}
	if why == "" {
		return nil
	}
	return oneSentence("%s of the pod is for another operating system than linux, and %s for linux; set spec.os.name of the pod, which is all that Pillion reads besides spec.nodeSelector",
		why, areFor(listNames("the container", added), len(added)))
}

func areFor(names string, n int) string {
	if n == 1 {
		return names + " is"
	}
	return names + " are"
}

// selectsOther reports whether the required node affinity of a pod selects no node with Linux.
func selectsOther(pod *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if !slices.ContainsFunc(terms[i].MatchExpressions, excludesLinux) {
			return false
		}
	}
	return len(terms) > 0
}

func excludesLinux(r corev1.NodeSelectorRequirement) bool {
	if !slices.Contains(osLabels(), r.Key) {
		return false
	}
	named := slices.Contains(r.Values, string(corev1.Linux))
	return r.Operator == corev1.NodeSelectorOpIn && !named || r.Operator == corev1.NodeSelectorOpNotIn && named
}

func osLabels() []string { all := schema.OSLabels(); return all[:] }
