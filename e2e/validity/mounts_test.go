// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume/util"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/validation"
)

// node makes the volumes of a pod with the kubelet's own code, and then mounts them as a container runtime does. What is not known
// of a volume is chosen: see choices.
type node struct {
	pod      *corev1.Pod
	dir      string
	keys     bool // whether ConfigMaps have the keys that the files of the kubelet need
	choices  int  // one bit for each part of a volume that is not known: whether it is a file
	asked    int  // how many bits were used
	volumes  map[string]string
	writable map[string]bool
}

// refusals returns the containers that do not start, whatever the volumes contain that are not known.
func refusals(t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	never := map[string]string(nil)
	for _, keys := range []bool{false, true} {
		for choices, asked := 0, 0; choices < 1<<asked; choices++ {
			dir, err := os.MkdirTemp("", "mounts") //nolint:usetesting // one at a time, because there are many
			if err != nil {
				t.Fatal(err)
			}
			n := &node{pod: pod, dir: dir, keys: keys, choices: choices, volumes: map[string]string{}, writable: map[string]bool{}}
			now := n.run(t)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if asked = max(asked, min(n.asked, 7)); never == nil {
				never = now
			}
			maps.DeleteFunc(never, func(container, _ string) bool { return now[container] == "" })
		}
	}
	return never
}

func (n *node) run(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	containers := slices.Concat(n.pod.Spec.InitContainers, n.pod.Spec.Containers)
	for i := range containers {
		for _, m := range containers[i].VolumeMounts {
			n.writable[m.Name] = n.writable[m.Name] || !m.ReadOnly
		}
	}
	for i := range n.pod.Spec.Volumes {
		if err := n.makeVolume(&n.pod.Spec.Volumes[i]); err != nil {
			t.Fatal(err)
		}
	}
	parts := map[string]string{}
	for range 2 { // what one container leads to may be what another one needs
		for i := range containers {
			for k := range containers[i].VolumeMounts {
				if _, err := n.source(&containers[i], k); err != nil {
					parts[containers[i].Name] = err.Error()
				}
			}
		}
	}
	for i := range containers {
		if err := n.start(&containers[i]); err != nil {
			all[containers[i].Name] = err.Error()
		}
	}
	maps.Copy(all, parts)
	return all
}

// isFile decides about something that is not known.
func (n *node) isFile() bool {
	n.asked++
	return n.choices>>(n.asked-1)&1 == 1
}

func (n *node) makeVolume(v *corev1.Volume) error {
	at := filepath.Join(n.dir, "volumes", v.Name)
	n.volumes[v.Name] = at
	if v.HostPath != nil {
		isFile := false
		switch is := *cmp.Or(v.HostPath.Type, new(corev1.HostPathUnset)); is {
		case corev1.HostPathUnset:
			isFile = n.isFile()
		case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		default:
			isFile = true
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil || !isFile {
			return errors.Join(err, os.MkdirAll(at, 0o755))
		}
		return os.WriteFile(at, nil, 0o600)
	}
	if err := os.MkdirAll(at, 0o755); err != nil || !isWritten(v) {
		return err
	}
	if err := util.MakeNestedMountpoints(v.Name, at, *n.pod); err != nil {
		return err
	}
	payload := map[string]util.FileProjection{}
	for _, name := range n.filesOf(v) {
		payload[name] = util.FileProjection{Mode: 0o644}
	}
	w, err := util.NewAtomicWriter(at, "test")
	if err != nil {
		return err
	}
	return w.Write(payload, nil)
}

func isWritten(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
}

func (n *node) filesOf(v *corev1.Volume) (all []string) {
	items := func(keys []corev1.KeyToPath) {
		for _, key := range keys {
			all = append(all, key.Path)
		}
		if len(keys) == 0 {
			all = append(all, n.keysOf(v.Name)...)
		}
	}
	sources := []corev1.VolumeProjection{{}}
	if v.ConfigMap != nil {
		items(v.ConfigMap.Items)
	}
	if v.Secret != nil {
		items(v.Secret.Items)
	}
	if v.Projected != nil {
		sources = v.Projected.Sources
	}
	for _, source := range sources {
		if source.ConfigMap != nil {
			items(source.ConfigMap.Items)
		}
		if source.ServiceAccountToken != nil {
			all = append(all, source.ServiceAccountToken.Path)
		}
	}
	return all
}

// keysOf returns the keys of a ConfigMap of which the pod does not name any: those that are mounted.
func (n *node) keysOf(volume string) (keys []string) {
	for _, c := range slices.Concat(n.pod.Spec.InitContainers, n.pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.Name != volume {
				continue
			}
			if key := path.Clean(partOf(&c, &m)); key != "." && !strings.Contains(key, "/") {
				keys = append(keys, key)
			}
			if rest, inside := strings.CutPrefix(path.Clean(c.TerminationMessagePath), path.Clean(m.MountPath)+"/"); inside && n.keys && !strings.Contains(rest, "/") {
				keys = append(keys, rest)
			}
		}
	}
	isParent := func(key string) bool {
		return slices.ContainsFunc(slices.Concat(n.pod.Spec.InitContainers, n.pod.Spec.Containers), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume && strings.HasPrefix(partOf(&c, &m), key+"/") })
		})
	}
	return slices.DeleteFunc(keys, isParent)
}

func partOf(c *corev1.Container, m *corev1.VolumeMount) string {
	part := cmp.Or(m.SubPath, m.SubPathExpr)
	for _, v := range c.Env {
		part = strings.ReplaceAll(part, "$("+v.Name+")", v.Value)
	}
	return part
}

// source returns the directory or file that is mounted, which the kubelet creates if it is a part of a volume that is not there.
func (n *node) source(c *corev1.Container, k int) (string, error) {
	m := &c.VolumeMounts[k]
	i := slices.IndexFunc(n.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
	v, part := &n.pod.Spec.Volumes[i], partOf(c, m)
	at := filepath.Join(n.volumes[m.Name], part)
	switch _, err := os.Stat(at); {
	case part == "":
		return at, nil
	case !isWritten(v) && (v.EmptyDir == nil || n.writable[v.Name]):
		at = filepath.Join(n.dir, "parts", m.Name, strings.ReplaceAll(part, "/", "_"))
		if _, err := os.Stat(at); err == nil {
			return at, nil
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil || !n.isFile() {
			return at, errors.Join(err, os.MkdirAll(at, 0o755))
		}
		return at, os.WriteFile(at, nil, 0o600)
	case err != nil:
		return at, os.MkdirAll(at, 0o755)
	}
	return at, nil
}

// mounted is something that is mounted in a container.
type mounted struct {
	path, source string
	readOnly     bool
	free         bool // whether it may contain anything
}

// start mounts everything in a new container, as containerd and runc do.
func (n *node) start(c *corev1.Container) error {
	root := filepath.Join(n.dir, "roots", c.Name)
	message := filepath.Join(n.dir, "message")
	if err := errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(message, nil, 0o600)); err != nil {
		return err
	}
	var all []mounted
	for i, m := range c.VolumeMounts {
		source, err := n.source(c, i)
		if err != nil {
			return err
		}
		v := &n.pod.Spec.Volumes[slices.IndexFunc(n.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		free := v.EmptyDir == nil && !isWritten(v) || v.EmptyDir != nil && n.writable[v.Name]
		all = append(all, mounted{path.Clean("/" + m.MountPath), source, m.ReadOnly || isWritten(v), free})
	}
	for _, file := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		if !slices.ContainsFunc(all, func(m mounted) bool { return m.path == file }) {
			all = append(all, mounted{path: file, source: message})
		}
	}
	all = append(all, mounted{path: path.Clean(cmp.Or(c.TerminationMessagePath, "/dev/termination-log")), source: message})
	slices.SortStableFunc(all, func(a, b mounted) int { return strings.Count(a.path, "/") - strings.Count(b.path, "/") })
	done := []mounted{{path: "/", source: root}}
	for _, m := range all {
		info, err := os.Stat(m.source)
		if err != nil {
			return err
		}
		if err := place(done, m.path, info.IsDir()); err != nil {
			return err
		}
		done = append(done, m)
	}
	if c.WorkingDir != "" {
		return place(done, path.Clean(c.WorkingDir), true)
	}
	return nil
}

// place creates a directory or file at a path of a container, unless it is there.
func place(done []mounted, at string, isDir bool) error {
	var outer mounted
	for _, m := range done {
		if at == m.path || strings.HasPrefix(at, strings.TrimSuffix(m.path, "/")+"/") {
			outer = m // later ones are longer, or hide the earlier ones
		}
	}
	real := filepath.Join(outer.source, strings.TrimPrefix(at, outer.path))
	if at == outer.path {
		real = outer.source
	}
	switch info, err := os.Stat(real); {
	case err == nil && info.IsDir() != isDir:
		return fmt.Errorf("%s is a directory: %t", at, info.IsDir())
	case err == nil:
		return nil
	}
	if info, err := os.Stat(outer.source); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is inside of the file %s", at, outer.path)
	}
	if outer.free {
		return nil
	}
	if outer.readOnly {
		return fmt.Errorf("%s is inside of %s, which is read-only", at, outer.path)
	}
	if isDir {
		return os.MkdirAll(real, 0o755)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(real), 0o755), os.WriteFile(real, nil, 0o600))
}

// mountScene makes a random pod and template about volumes and mounts.
func mountScene(m *maker) (podJSON, template []byte) {
	volumes := func(prefix string, n int) (all []any) {
		for i := range n {
			v := object{"name": fmt.Sprint(prefix, i)}
			items := func() object {
				of := object{"name": "config"}
				if !m.in(3) {
					paths := []any{}
					for _, path := range [][]string{{"a"}, {"a/b"}, {"a/b", "c"}, {"hosts", "hostname", "resolv.conf"}, {"log", "a"}, {"token"}}[m.IntN(6)] {
						paths = append(paths, object{"key": "k", "path": path})
					}
					of["items"] = paths
				}
				return of
			}
			switch m.IntN(6) {
			case 0, 1:
				v["configMap"] = items()
			case 2:
				v["projected"] = object{"sources": []any{object{"configMap": items()}}}
			case 3:
				v["hostPath"] = object{"path": "/x", "type": pick(m, "", "Socket", "Directory", "FileOrCreate")}
			default:
				v["emptyDir"] = object{}
			}
			all = append(all, v)
		}
		return all
	}
	mounts := func(names ...string) (all []any) {
		seen := map[string]bool{}
		for range m.IntN(3) {
			mount := object{"name": pick(m, names...), "mountPath": pick(m, "/w", "/w/a", "/w/a/b", "/w/c", "/w/log", "/etc", "/etc/hosts", "/etc/hosts/x", "/etc/a",
				"/var/run/secrets", validation.TokenPath, validation.TokenPath+"/x", validation.TokenPath+"/token", "/logs", "/logs/a")}
			at := mount["mountPath"].(string)
			if seen[at] {
				continue
			}
			seen[at] = true
			switch m.IntN(6) {
			case 0, 1:
				mount["subPath"] = pick(m, "a", "a/b", "c", "log")
			case 2:
				mount["subPathExpr"] = pick(m, "$(KEY)", "a/$(KEY)")
			}
			if m.in(3) {
				mount["readOnly"] = true
			}
			all = append(all, mount)
		}
		return all
	}
	container := func(name string, names ...string) object {
		c := object{"name": name, "image": "i:1", "env": []any{object{"name": "KEY", "value": pick(m, "a", "b", "log")}}, "volumeMounts": mounts(names...)}
		if m.in(4) {
			c["terminationMessagePath"] = pick(m, "/w/log", "/logs", "/w/a", "/logs/a")
		}
		if m.in(3) {
			c["workingDir"] = pick(m, "/w", "/w/a", "/w/a/b", "/w/none", "/etc/hosts", "/logs", validation.TokenPath+"/none")
		}
		return c
	}
	spec := object{"volumes": volumes("v", 2), "containers": []any{container("app", "v0", "v1")}}
	if m.in(2) {
		spec["containers"] = append(spec["containers"].([]any), container("worker", "v0", "v1"))
	}
	if m.in(3) {
		spec["automountServiceAccountToken"] = m.in(2)
	}
	fragment := object{"volumes": volumes("t", 2)}
	var each []any
	if m.in(2) {
		fragment["containers"] = []any{container("side", "t0", "t1")}
	}
	if len(fragment) == 1 || m.in(2) {
		each = []any{object{"add": object{"volumeMounts": mounts("t0", "t1")}}}
	}
	podJSON = compact(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web"}, "spec": spec})
	return podJSON, compact(object{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": object{"name": "t"}, "spec": object{
		"default": true, "pod": object{"spec": fragment}, "forEachContainer": each,
	}})
}

// withToken returns a pod as the ServiceAccount plugin leaves it.
func withToken(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	const name = validation.TokenVolumePrefix + "abcde"
	if auto := pod.Spec.AutomountServiceAccountToken; auto != nil && !*auto {
		return pod
	}
	used := false
	for i := range len(pod.Spec.InitContainers) + len(pod.Spec.Containers) {
		var c *corev1.Container
		if c = &pod.Spec.Containers[max(0, i-len(pod.Spec.InitContainers))]; i < len(pod.Spec.InitContainers) {
			c = &pod.Spec.InitContainers[i]
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == validation.TokenPath }) {
			used, c.VolumeMounts = true, append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: validation.TokenPath})
		}
	}
	if used && !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}, {ConfigMap: &corev1.ConfigMapProjection{Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		}}}})
	}
	return pod
}

// TestMounts checks with the kubelet's own code, and with a container runtime that mounts in folders, that a container starts with
// a template if it starts without, and that a template is skipped for no other reason. It also checks that the decision is the
// same for a file, in which the mount of the API token is missing.
func TestMounts(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(size.Choose(t, 400, 20000)) {
		seen[tryMounts(t, seed)]++
	}
	t.Logf("%v", seen)
	if seen["injected"] < 50 || seen["refused"] < 30 {
		t.Errorf("too few of each: %v", seen)
	}
}

// FuzzMounts is TestMounts for any seed.
func FuzzMounts(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { tryMounts(t, seed) })
}

func tryMounts(t *testing.T, seed uint64) string {
	t.Helper()
	podJSON, text := mountScene(newMaker(seed, 78))
	found, problems := templates.Parse("t", text)
	if _, err := stored(podJSON); err != nil || len(problems) > 0 {
		return "invalid"
	}
	injector := inject.New(templates.NewSet(found))
	decide := func(podJSON []byte, file bool) (*inject.Decision, *corev1.Pod) {
		r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: namespace}, Object: podJSON, File: file})
		if err != nil {
			t.Fatal(err)
		}
		return &r.Decisions[0], typed(t, patched(t, podJSON, r.Patch()))
	}
	before := withToken(typed(t, podJSON))
	webhookJSON, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	byFile, fromFile := decide(podJSON, true)
	byWebhook, fromWebhook := decide(webhookJSON, false)
	fail := func(format string, args ...any) {
		t.Fatalf("seed %d: %s\n%s %s\ntemplate: %s\npod: %s", seed, fmt.Sprintf(format, args...), byWebhook.Code, byWebhook.Message, text, podJSON)
	}
	if byFile.Code != byWebhook.Code {
		fail("%s in a file: %s", byFile.Code, byFile.Message)
	}
	known := refusals(t, before)
	for _, after := range []*corev1.Pod{withToken(fromFile), withToken(fromWebhook)} {
		for container, why := range refusals(t, after) {
			if known[container] == "" {
				fail("the container %s does not start: %s", container, why)
			}
		}
	}
	if byWebhook.Code != inject.CodeConflict || strings.Contains(byWebhook.Message, "another volume") || strings.Contains(byWebhook.Message, "this template needs") {
		return string(byWebhook.Code)
	}
	forced := typed(t, podJSON)
	force(forced, text, t)
	after := refusals(t, withToken(forced))
	for container := range known {
		delete(after, container)
	}
	if len(after) == 0 && len(known) == 0 {
		fail("all containers start: %v", after)
	}
	return "refused"
}
