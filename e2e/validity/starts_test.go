// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/kubernetes/pkg/securitycontext"
	"k8s.io/kubernetes/pkg/util/parsers"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// refusalsOf returns why the kubelet would not start a pod, by its own functions. What a node alone knows counts as right: the
// users of images, and the values of Secrets and Services.
func refusalsOf(pod *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		sc := securitycontext.DetermineEffectiveSecurityContext(pod, &c)
		if sc.RunAsNonRoot != nil && *sc.RunAsNonRoot && sc.RunAsUser != nil && *sc.RunAsUser == 0 { // verifyRunAsNonRoot
			all[c.Name+" user"] = "container's runAsUser breaks non-root policy"
		}
		for field, port := range portsOf(&c) {
			if _, err := probe.ResolveContainerPort(port, &c); err != nil {
				all[c.Name+" "+field] = err.Error()
			}
		}
		for i := range c.VolumeMounts {
			if err := subPathOf(&c, c.VolumeMounts[i].SubPathExpr); err != nil {
				all[c.Name+" mount "+c.VolumeMounts[i].MountPath] = err.Error()
			}
		}
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.ResourceFieldRef != nil && v.ValueFrom.ResourceFieldRef.ContainerName != "" {
				if _, err := resource.ExtractResourceValueByContainerName(v.ValueFrom.ResourceFieldRef, pod, v.ValueFrom.ResourceFieldRef.ContainerName); err != nil {
					all[c.Name+" env "+v.Name] = err.Error()
				}
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.DownwardAPI == nil {
			continue
		}
		for _, file := range v.DownwardAPI.Items {
			if file.ResourceFieldRef == nil {
				continue
			}
			if _, err := resource.ExtractResourceValueByContainerName(file.ResourceFieldRef, pod, file.ResourceFieldRef.ContainerName); err != nil {
				all["volume "+v.Name] = err.Error()
			}
		}
	}
	return all
}

// portsOf returns the ports of a container's probes and hooks, by place.
func portsOf(c *corev1.Container) map[string]intstr.IntOrString {
	all := map[string]intstr.IntOrString{}
	handler := func(field string, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) {
		if get != nil {
			all[field] = get.Port
		} else if tcp != nil {
			all[field] = tcp.Port
		}
	}
	for field, p := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} {
		if p != nil {
			handler(field, p.HTTPGet, p.TCPSocket)
		}
	}
	if l := c.Lifecycle; l != nil {
		for field, h := range map[string]*corev1.LifecycleHandler{"postStart": l.PostStart, "preStop": l.PreStop} {
			if h != nil {
				handler(field, h.HTTPGet, nil)
			}
		}
	}
	return all
}

// subPathOf returns why the kubelet cannot use a subPathExpr (ExpandContainerVolumeMounts and makeMounts).
func subPathOf(c *corev1.Container, expr string) error {
	if expr == "" {
		return nil
	}
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	values := map[string]string{}
	for _, v := range c.Env {
		values[v.Name] = expansion.Expand(v.Value, expansion.MappingFuncFor(values, env))
		if v.ValueFrom != nil {
			values[v.Name] = "known-by-the-node"
		}
	}
	maps.Copy(env, values)
	var missing []string
	expanded := expansion.Expand(expr, func(name string) string {
		if _, there := env[name]; !there && len(c.EnvFrom) > 0 {
			return "known-by-the-node"
		}
		if env[name] == "" {
			missing = append(missing, name)
		}
		return env[name]
	})
	switch {
	case len(missing) > 0:
		return fmt.Errorf("missing value for %v", missing)
	case path.IsAbs(expanded) || slices.Contains(strings.Split(expanded, "/"), ".."):
		return fmt.Errorf("%s is no sub path", expanded)
	}
	return nil
}

// startScene makes a random pod and template about users, ports, sub paths and resources of containers.
func startScene(m *maker) (podJSON, template []byte) {
	spec := object{"containers": []any{m.starter("app", true)}}
	if m.in(2) {
		spec["containers"] = append(spec["containers"].([]any), m.starter(pick(m, "worker", "side"), true))
	}
	if sc := m.user(); len(sc) > 0 {
		spec["securityContext"] = sc
	}
	volumes := []any{object{"name": "data", "emptyDir": object{}}}
	spec["volumes"] = volumes
	pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web"}, "spec": spec}
	if m.in(2) {
		pod["metadata"].(object)["annotations"] = object{"t.pillion.dev/customize": "true"}
	}
	added := object{"volumes": volumes}
	if m.in(4) {
		added["volumes"] = append(slices.Clone(volumes), object{"name": "info", "downwardAPI": object{"items": []any{object{"path": "a", "resourceFieldRef": object{"resource": "limits.cpu", "containerName": pick(m, "app", "side", "nobody")}}}}})
	}
	t := object{"default": true, "pod": object{"spec": added}}
	if m.in(2) {
		added["containers"] = []any{m.starter("side", true)}
	}
	if len(added) == 1 || m.in(2) {
		each := m.starter("", false)
		each["env"] = append(each["env"].([]any), object{"name": "EACH", "value": "x"})
		t["forEachContainer"] = []any{object{"add": each}}
	}
	return compact(pod), compact(object{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": object{"name": "t"}, "spec": t})
}

func (m *maker) user() object {
	sc := object{}
	if m.in(2) {
		sc["runAsUser"] = pick(m, 0, 0, 5)
	}
	if m.in(2) {
		sc["runAsNonRoot"] = pick(m, true, true, false)
	}
	return sc
}

// starter makes a container, or a part of one for forEachContainer.
func (m *maker) starter(name string, whole bool) object {
	c := object{"env": []any{}}
	if whole {
		c["name"], c["image"] = name, "i:1"
	}
	if sc := m.user(); len(sc) > 0 {
		c["securityContext"] = sc
	}
	if m.in(2) {
		port := object{"containerPort": pick(m, 80, 81)}
		if !m.in(3) {
			port["name"] = pick(m, "web", "http")
		}
		c["ports"] = []any{port}
	}
	handler := func() object {
		return object{"httpGet": object{"port": pick[any](m, 80, "web", "http")}}
	}
	if m.in(3) {
		c["lifecycle"] = object{pick(m, "postStart", "preStop"): handler()}
	}
	if whole && m.in(3) {
		c[pick(m, "startupProbe", "livenessProbe", "readinessProbe")] = pick(m, handler(), object{"tcpSocket": object{"port": pick[any](m, 80, "web")}})
	}
	env := []any{}
	for _, name := range []string{"A", "B"} {
		switch m.IntN(5) {
		case 0:
			env = append(env, object{"name": name, "value": pick(m, "", "x", "/x", "..", "$(A)", "$(B)/$(A)", "$$(A)", "$(KUBERNETES_SERVICE_HOST)")})
		case 1:
			env = append(env, object{"name": name, "valueFrom": object{"secretKeyRef": object{"name": "s", "key": "k"}}})
		case 2:
			if m.in(3) {
				env = append(env, object{"name": name, "valueFrom": object{"resourceFieldRef": object{"resource": "limits.cpu", "containerName": pick(m, "app", "side", "nobody")}}})
			}
		}
	}
	c["env"] = env
	if m.in(8) {
		c["envFrom"] = []any{object{"secretRef": object{"name": "s"}}}
	}
	if m.in(3) {
		c["volumeMounts"] = []any{object{"name": "data", "mountPath": pick(m, "/data", "/logs"), "subPathExpr": pick(m, "$(A)", "$(A)/$(B)", "a/$(B)", "$(KUBERNETES_SERVICE_HOST)", "$(NONE)", "$$(A)", "$(", "a$(A")}}
	}
	return c
}

// TestStarts checks that the kubelet starts an injected pod if it starts the pod without the template, and
// that a template is skipped for no other reason.
func TestStarts(t *testing.T) {
	seen := map[inject.Code]int{}
	for seed := range uint64(size.Choose(t, 4000, 40000)) {
		seen[tryStart(t, seed)]++
	}
	t.Logf("%v", seen)
	if seen[inject.CodeInjected] < 500 || seen[inject.CodeConflict] < 500 {
		t.Errorf("too few of each: %v", seen)
	}
}

// FuzzStarts is TestStarts for any seed.
func FuzzStarts(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { tryStart(t, seed) })
}

func tryStart(t *testing.T, seed uint64) inject.Code {
	t.Helper()
	podJSON, text := startScene(newMaker(seed, 77))
	found, problems := templates.Parse("t", text)
	before, err := sent(podJSON)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stored(podJSON); err != nil || len(problems) > 0 {
		return ""
	}
	r, err := inject.New(templates.NewSet(found)).Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: namespace}, Object: before})
	if err != nil {
		t.Fatal(err)
	}
	d := &r.Decisions[0]
	known := refusalsOf(typed(t, before))
	for place, why := range refusalsOf(typed(t, patched(t, before, r.Patch()))) {
		if known[place] == "" {
			t.Fatalf("seed %d: %s, and the kubelet says about %s: %s\ntemplate: %s\npod: %s", seed, d.Code, place, why, text, podJSON)
		}
	}
	if d.Code != inject.CodeConflict || !strings.Contains(d.Message, "kubelet") {
		return d.Code
	}
	forced := typed(t, before)
	force(forced, text, t)
	after := refusalsOf(forced)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(place string) bool { return known[place] == "" }) {
		t.Fatalf("seed %d: conflict, and the kubelet refuses nothing more: %s\ntemplate: %s\npod: %s", seed, d.Message, text, podJSON)
	}
	return d.Code
}

func typed(t *testing.T, podJSON []byte) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(podJSON, &pod); err != nil {
		t.Fatal(err)
	}
	return &pod
}

// force adds to a pod what a template of startScene contains, without the rules about what the kubelet starts.
func force(pod *corev1.Pod, template []byte, t *testing.T) {
	t.Helper()
	var all struct {
		Spec struct {
			Pod              corev1.Pod `json:"pod"`
			ForEachContainer []struct {
				Add corev1.Container `json:"add"`
			} `json:"forEachContainer"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(template, &all); err != nil {
		t.Fatal(err)
	}
	own := map[string]*corev1.Container{}
	for i := range all.Spec.Pod.Spec.Containers {
		own[all.Spec.Pod.Spec.Containers[i].Name] = &all.Spec.Pod.Spec.Containers[i]
	}
	there := map[string]bool{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		there[c.Name] = true
		if own[c.Name] != nil {
			fill(pod, c, own[c.Name])
			continue
		}
		for j := range all.Spec.ForEachContainer {
			fill(pod, c, &all.Spec.ForEachContainer[j].Add)
		}
	}
	for name, c := range own {
		if !there[name] {
			pod.Spec.Containers = append(pod.Spec.Containers, *c)
		}
	}
	for _, v := range all.Spec.Pod.Spec.Volumes {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(o corev1.Volume) bool { return o.Name == v.Name }) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, v)
		}
	}
}

// fill adds what a container lacks.
func fill(pod *corev1.Pod, c, add *corev1.Container) {
	for _, v := range add.Env {
		if !slices.ContainsFunc(c.Env, func(o corev1.EnvVar) bool { return o.Name == v.Name }) {
			c.Env = append(c.Env, v)
		}
	}
	for _, p := range add.Ports {
		if !slices.ContainsFunc(c.Ports, func(o corev1.ContainerPort) bool { return o.ContainerPort == p.ContainerPort }) {
			c.Ports = append(c.Ports, p)
		}
	}
	for _, v := range add.VolumeMounts {
		if !slices.ContainsFunc(c.VolumeMounts, func(o corev1.VolumeMount) bool { return o.MountPath == v.MountPath }) {
			c.VolumeMounts = append(c.VolumeMounts, v)
		}
	}
	if len(c.EnvFrom) == 0 {
		c.EnvFrom = add.EnvFrom
	}
	for _, p := range []struct{ to, from **corev1.Probe }{{&c.StartupProbe, &add.StartupProbe}, {&c.LivenessProbe, &add.LivenessProbe}, {&c.ReadinessProbe, &add.ReadinessProbe}} {
		if *p.to == nil {
			*p.to = *p.from
		}
	}
	if add.Lifecycle != nil {
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		for _, h := range []struct{ to, from **corev1.LifecycleHandler }{{&c.Lifecycle.PostStart, &add.Lifecycle.PostStart}, {&c.Lifecycle.PreStop, &add.Lifecycle.PreStop}} {
			if *h.to == nil {
				*h.to = *h.from
			}
		}
	}
	if add.SecurityContext == nil {
		return
	}
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	isRoot := func(user *int64) bool { return user != nil && *user == 0 }
	if c.SecurityContext.RunAsNonRoot == nil && !isRoot(c.SecurityContext.RunAsUser) && (pod.Spec.SecurityContext == nil || !isRoot(pod.Spec.SecurityContext.RunAsUser)) {
		c.SecurityContext.RunAsNonRoot = add.SecurityContext.RunAsNonRoot
	}
	if c.SecurityContext.RunAsUser == nil {
		c.SecurityContext.RunAsUser = add.SecurityContext.RunAsUser
	}
}

// TestImageNames compares the names of images that templates may have with those that the kubelet can parse.
func TestImageNames(t *testing.T) {
	m := newMaker(1, 2)
	rejected, right := 0, 0
	for range size.Choose(t, 3000, 30000) {
		name := ""
		for range 1 + m.IntN(6) {
			name += pick(m, "a", "b1", "Foo", "registry.example", ":", ":80", "/", ".", "_", "-", "--", "__", "@", "@sha256:"+strings.Repeat("0a", 32), "@sha512:"+strings.Repeat("0a", 64), "@md5:"+strings.Repeat("0a", 32), "[::1]", "localhost", ":v1.2", "☃", " ", "")
		}
		if strings.TrimSpace(name) != name || name == "" {
			continue
		}
		_, problems := templates.Parse("t", compact(object{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": object{"name": "t"}, "spec": object{"pod": object{"spec": object{"containers": []any{object{"name": "side", "image": name}}}}}}))
		_, _, _, err := parsers.ParseImageName(name)
		switch {
		case len(problems) > 0 && err == nil:
			t.Errorf("the kubelet takes the image %q, and a template may not have it: %v", name, problems)
		case len(problems) > 0:
			rejected++
		case err == nil:
			right++
		default:
			t.Errorf("a template may have the image %q, and the kubelet says: %v", name, err)
		}
	}
	t.Logf("%d rejected, %d right", rejected, right)
}
