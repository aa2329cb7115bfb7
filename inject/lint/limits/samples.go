// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// samplePods returns pods of every quality of service class, the simplest first.
func samplePods() []Subject {
	some := corev1.ResourceList{corev1.ResourceCPU: mustQuantity("100m"), corev1.ResourceMemory: mustQuantity("64Mi")}
	var all []Subject
	for _, resources := range []corev1.ResourceRequirements{{}, {Requests: some}, {Requests: some, Limits: some}} {
		all = append(all, Subject{Situation: sample.Situation{Pod: encodePod(plainPod(resources)), Namespace: request.Namespace{Name: "sample", ServiceAccounts: request.SameServiceAccount{Known: true}}}})
	}
	return all
}

// plainPod returns a pod with an init container. It conforms to every Pod Security level by the fields of
// its containers, so that an injected container inherits nothing from the pod.
func plainPod(resources corev1.ResourceRequirements) *corev1.Pod {
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.example/app:1", Resources: resources,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(bool),
				RunAsNonRoot:             new(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}
	}
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{container("prepare")},
		Containers:     []corev1.Container{container("app")},
	}}
}

// resourcesOf returns words for what distinguishes a sample from the first one.
func resourcesOf(s sample.Situation) string {
	if len(decodePod(s.Pod).Spec.Containers[0].Resources.Limits) > 0 {
		return "requests and limits"
	}
	return "requests"
}

// barePod returns a copy of a sample whose containers have only a name and an image, as most pods have in a file.
func barePod(s sample.Situation) sample.Situation {
	pod := decodePod(s.Pod)
	spec := corev1.PodSpec{Volumes: pod.Spec.Volumes, HostNetwork: pod.Spec.HostNetwork, ServiceAccountName: pod.Spec.ServiceAccountName}
	for _, c := range pod.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	pod.Spec = spec
	s.Pod = encodePod(pod)
	return s
}

// hardenPod returns a copy of a pod whose containers conform to restricted by their own fields, if they say nothing else.
func hardenPod(s sample.Situation) sample.Situation {
	pod := decodePod(s.Pod)
	hard := plainPod(corev1.ResourceRequirements{}).Spec.Containers[0].SecurityContext
	for _, c := range containersOf(pod) {
		if c.SecurityContext == nil {
			c.SecurityContext = hard.DeepCopy()
		}
		of := c.SecurityContext
		if of.AllowPrivilegeEscalation == nil {
			of.AllowPrivilegeEscalation = hard.AllowPrivilegeEscalation
		}
		if of.RunAsNonRoot == nil {
			of.RunAsNonRoot = hard.RunAsNonRoot
		}
		if of.Capabilities == nil {
			of.Capabilities = hard.Capabilities.DeepCopy()
		}
		if of.SeccompProfile == nil {
			of.SeccompProfile = hard.SeccompProfile.DeepCopy()
		}
	}
	s.Pod = encodePod(pod)
	return s
}

// encodePod returns a pod as JSON.
func encodePod(pod *corev1.Pod) []byte {
	text, err := json.Marshal(pod)
	if err != nil {
		panic("limits: a pod is not JSON: " + err.Error())
	}
	return text
}

func decodePod(text []byte) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		panic("limits: a pod does not decode: " + err.Error())
	}
	return pod
}

// result is a pod with injected templates.
type result struct {
	*inject.Result

	injector *inject.Injector
	final    inject.Request // with the injected pod as JSON
	pod      *corev1.Pod
}

// injectInto injects templates into a pod.
func injectInto(s sample.Situation, all ...*templates.Template) *result {
	return (&result{injector: inject.New(templates.NewSet(all))}).injectAgain(s)
}

// injectAgain injects the same templates into another pod.
func (r *result) injectAgain(s sample.Situation) *result {
	r = &result{injector: r.injector, final: inject.Request{
		Operation: "CREATE", OptedIn: true, Username: s.Username, DryRun: s.DryRun, Namespace: s.Namespace, Object: s.Pod, Owner: workloads.Owner(s.Owner), File: true,
	}}
	var err error
	if r.Result, err = r.injector.Inject(r.final); err != nil {
		panic("limits: " + err.Error())
	}
	r.final.Object = r.InjectedJSON()
	r.pod = decodePod(r.final.Object)
	return r
}

// requestTemplates returns a pod that requests templates and sets their parameters: to the given values,
// or to samples. Missing are the parameters for which no sample fits.
func requestTemplates(pod Subject, values map[string]string, all ...*templates.Template) (asks Subject, missing []string) {
	set, asks := map[string]string{}, pod
	maps.Copy(set, values)
	for _, t := range all {
		needed, without := neededParams(pod, values, t)
		missing = append(missing, without...)
		samples := chooseSamples(pod, values, t, needed)
		maps.Copy(set, samples)
		asks.noteSamples(samples, t, needed)
	}
	return asks.withParams(set, all...), missing
}

// chooseAgain returns a pod with other sample values, if a template fails with those of a pod that meets its condition. Before, the
// condition was false, so it could not fail.
func chooseAgain(met, pod Subject, values map[string]string, t *templates.Template) Subject {
	needed, _ := neededParams(pod, values, t)
	samples := chooseSamples(met, values, t, needed)
	met.sampled = pod.sampled
	met.noteSamples(samples, t, needed)
	return met.withParams(samples, t)
}

// neededParams returns the parameters that need a sample value, and the names of those for which no sample fits.
func neededParams(pod Subject, values map[string]string, t *templates.Template) (needed []*v1alpha1.Param, missing []string) {
	isSet := pod.settingsOf(t)
	for i := range t.Spec.Params {
		p := &t.Spec.Params[i]
		_, given := values[paramKey(t, p)]
		switch {
		case given || !p.Needed() || isSet(p):
		case sample.Value(t, p) == "":
			missing = append(missing, paramKey(t, p))
		default:
			needed = append(needed, p)
		}
	}
	return needed, missing
}

// noteSamples records the values that the user has not set.
func (s *Subject) noteSamples(samples map[string]string, t *templates.Template, params []*v1alpha1.Param) {
	s.sampled = slices.Clone(s.sampled)
	for _, p := range params {
		s.sampled = append(s.sampled, p.Name+"="+samples[paramKey(t, p)])
	}
}

// paramKey returns what [Evaluator.Try] names a parameter.
func paramKey(t *templates.Template, p *v1alpha1.Param) string { return t.Name + "." + p.Name }

// someMemory is a sample value for memory. The samples of a type have none, because values that only differ in size lead to the same hints.
const someMemory = "64Mi"

// chooseSamples returns a sample value for each of some parameters: the first one that the parameter accepts, or a later one if the
// template fails with that. For example, a quantity can be 1, but a memory limit cannot.
func chooseSamples(pod Subject, values map[string]string, t *templates.Template, params []*v1alpha1.Param) map[string]string {
	const mostTries = 32 // an API server waits for the trial of a new template
	if len(params) == 0 {
		return nil
	}
	chosen, candidates := map[string]string{}, map[string][]string{}
	for _, p := range params {
		all := sample.Candidates(t, p)
		if t.Takes(p.Name, someMemory) == nil {
			all = append(all, someMemory)
		}
		chosen[paramKey(t, p)], candidates[paramKey(t, p)] = all[0], all[1:]
	}
	pod = pod.withParams(values, t)
	failingField := func() string {
		d := &injectInto(pod.withParams(chosen, t).Situation, t).Decisions[0]
		if d.Code != inject.CodeRenderFailed || lacksVolume(d) {
			return ""
		}
		field, _, _ := strings.Cut(d.Message, ": ")
		return field
	}
	// A value is better if a field fails that has not failed before, because another parameter may be the cause of that.
	now := failingField()
	failed := []string{now}
	for tries, better := 0, true; better; {
		better = false
		for _, p := range params {
			key := paramKey(t, p)
			usual := chosen[key]
			for i, value := range candidates[key] {
				if now == "" || tries == mostTries {
					return chosen
				}
				tries++
				chosen[key] = value
				if next := failingField(); !slices.Contains(failed, next) {
					now, better, candidates[key] = next, true, candidates[key][i+1:]
					failed = append(failed, now)
					break
				}
				chosen[key] = usual
			}
		}
	}
	return chosen
}

// settingsOf returns a function that reports whether the pod, its ServiceAccount or its namespace sets a parameter.
func (s Subject) settingsOf(t *templates.Template) func(p *v1alpha1.Param) bool {
	ofPod, ofAccount := decodePod(s.Pod).Annotations, accountOf(s.Situation).Annotations
	return func(p *v1alpha1.Param) bool {
		key := t.Key(p)
		_, byPod := ofPod[key]
		_, byNamespace := s.Namespace.Annotations[key]
		_, byAccount := ofAccount[key]
		return byPod || byNamespace || byAccount && p.Overridable(v1alpha1.ByServiceAccount)
	}
}

// withParams returns the pod with annotations that request templates and set parameters ("template.param").
func (s Subject) withParams(values map[string]string, all ...*templates.Template) Subject {
	p, annotations, account := decodePod(s.Pod), maps.Clone(s.Namespace.Annotations), accountOf(s.Situation)
	p.Annotations = maps.Clone(p.Annotations)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
		for i := range t.Spec.Params {
			param := &t.Spec.Params[i]
			value, given := values[paramKey(t, param)]
			if !given {
				continue
			}
			set := annotations
			switch {
			case param.Overridable(v1alpha1.ByPod):
				set = p.Annotations
			case param.Overridable(v1alpha1.ByServiceAccount) && account.Known:
				set = account.Annotations
			}
			maps.Copy(set, t.Annotations(param, value))
		}
	}
	p.Annotations[inject.AnnotationTemplates] = strings.Join(names, ",")
	s.Pod, s.Namespace.Annotations = encodePod(p), annotations
	s.Namespace.ServiceAccounts = request.SameServiceAccount(account)
	return s
}

// accountOf returns a copy of what is known about the pod's ServiceAccount.
func accountOf(s sample.Situation) request.ServiceAccount {
	account, err := s.ServiceAccount()
	if err != nil {
		panic("limits: " + err.Error())
	}
	account.Labels, account.Annotations = maps.Clone(account.Labels), maps.Clone(account.Annotations)
	if account.Annotations == nil {
		account.Annotations = map[string]string{}
	}
	return account
}

// Subject is a pod on which templates are tried.
type Subject struct {
	On string // for example Deployment/web; "" for a sample, which may be changed
	sample.Situation
	sampled []string // values of parameters ("param=value") that the user has not set
}

// otherChanges returns what the same template changes for pods that have more than a sample: a port with each name that the template
// has, in the first container or in a native sidecar, and the restart policy of a Job.
func (r *result) otherChanges(s sample.Situation) (all []change) {
	try := func(kind string, more func(*corev1.Pod)) {
		pod := decodePod(s.Pod)
		more(pod)
		other := s
		other.Pod = encodePod(pod)
		all = append(all, ofSample(pod, r.injectAgain(other).pod, kind))
	}
	try("Job", func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever })
	var same []corev1.ContainerPort
	order, _ := targetPorts(r.pod)
	for i, p := range order {
		same = append(same, corev1.ContainerPort{Name: p.name, Protocol: p.protocol, ContainerPort: int32(60_000 + i)})
	}
	if len(same) == 0 {
		return all
	}
	try("Deployment", func(pod *corev1.Pod) { pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, same...) })
	try("Deployment", func(pod *corev1.Pod) {
		own := *pod.Spec.Containers[0].DeepCopy()
		own.Name, own.Ports, own.RestartPolicy = ownSidecar, same, new(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, own)
	})
	return all
}

// lacksVolume reports whether a template fails because the pod lacks a volume that it mounts.
func lacksVolume(d *inject.Decision) bool {
	return d.Code == inject.CodeRenderFailed && len(d.Obstacles) > 0 && d.Obstacles[0].Path == "/spec/volumes/-"
}

// withVolume returns a pod with another volume.
func withVolume(s sample.Situation, volume inject.JSON) sample.Situation {
	pod, v := decodePod(s.Pod), corev1.Volume{}
	if err := json.Unmarshal([]byte(volume), &v); err != nil {
		panic("limits: a volume is not JSON: " + err.Error())
	}
	if v.PersistentVolumeClaim == nil {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	s.Pod = encodePod(pod)
	return s
}

// misspelledHints returns a hint if a mount's computed name is nearly that of one of the template's volumes. The
// sample pod got such a volume, because the pod's own ones are allowed too.
func misspelledHints(asked, tried Subject, injected *corev1.Pod) []string {
	names := func(pod *corev1.Pod) (all []string) {
		for i := range pod.Spec.Volumes {
			all = append(all, pod.Spec.Volumes[i].Name)
		}
		return all
	}
	before, own := names(decodePod(asked.Pod)), names(decodePod(tried.Pod))
	added := slices.DeleteFunc(names(injected), func(name string) bool { return slices.Contains(own, name) })
	for _, name := range own {
		i := slices.IndexFunc(added, func(want string) bool { return problem.IsTypo(name, want) })
		if i >= 0 && !slices.Contains(before, name) {
			return []string{fmt.Sprintf("it mounts the volume %q, which is not one of its own, so a pod without this volume does not get it; did you mean %q?", name, added[i])}
		}
	}
	return nil
}
