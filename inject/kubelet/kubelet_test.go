// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject/kubelet"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// newTag marks what templates have added in the pods of these tests.
const newTag = "!new"

// specVolumes finds volumes in a pod's spec by their names.
type specVolumes struct {
	spec      *jsontree.Node
	getsToken bool
}

// FindVolume implements kubelet.Volumes.
func (v specVolumes) FindVolume(mount *jsontree.Node) *jsontree.Node {
	volumes := v.spec.Get("volumes").Items()
	for i := range volumes {
		if volumes[i].Get("name").SameText(mount.Get("name")) {
			return &volumes[i]
		}
	}
	return nil
}

// GetsToken implements kubelet.Volumes.
func (v specVolumes) GetsToken() bool { return v.getsToken }

// parseSpec returns the spec of a pod from YAML, with what is tagged as new added to it.
func parseSpec(t *testing.T, text string) *jsontree.Node {
	t.Helper()
	var y yaml.Node
	if err := yaml.Unmarshal([]byte(text), &y); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	spec, journal := jsontree.Members(), new(jsontree.Journal)
	addMembers(t, journal, &spec, y.Content[0])
	return &spec
}

// addValue calls add with a value from YAML, and adds what is new in it afterwards. Add returns the value in its place.
func addValue(t *testing.T, journal *jsontree.Journal, y *yaml.Node, set func(jsontree.Node) *jsontree.Node, add func(jsontree.Node) *jsontree.Node) {
	t.Helper()
	if y.Tag == newTag {
		plain := *y
		plain.Tag = ""
		value, err := jsontree.FromYAML(&plain)
		if err != nil {
			t.Fatal(err)
		}
		add(value)
		return
	}
	switch y.Kind {
	case yaml.MappingNode:
		addMembers(t, journal, set(jsontree.Members()), y)
	case yaml.SequenceNode:
		list := set(jsontree.Items())
		for i, item := range y.Content {
			addValue(t, journal, item, func(n jsontree.Node) *jsontree.Node {
				list.Append(n)
				return &list.Items()[i]
			}, func(n jsontree.Node) *jsontree.Node {
				journal.Insert(list, i, n)
				return &list.Items()[i]
			})
		}
	default:
		value, err := jsontree.FromYAML(y)
		if err != nil {
			t.Fatal(err)
		}
		set(value)
	}
}

// addMembers adds the members of an object in YAML.
func addMembers(t *testing.T, journal *jsontree.Journal, object *jsontree.Node, y *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(y.Content); i += 2 {
		name := y.Content[i].Value
		addValue(t, journal, y.Content[i+1], func(n jsontree.Node) *jsontree.Node {
			object.Set(name, n)
			return object.Get(name)
		}, func(n jsontree.Node) *jsontree.Node { return journal.Add(object, name, n) })
	}
}

// startCase is a pod, and the faults because of which the kubelet does not start it.
type startCase struct {
	spec  string
	os    string // linux if it is empty
	token bool   // whether the ServiceAccount plugin will mount the API token
	want  []string
}

// findFaults returns the faults of a case, each with its place.
func (c startCase) findFaults(t *testing.T, most int) (all []string) {
	t.Helper()
	spec := parseSpec(t, c.spec)
	pod := kubelet.Pod{Spec: spec, OS: "linux", Volumes: specVolumes{spec, c.token}}
	if c.os != "" {
		pod.OS = c.os
	}
	for _, f := range pod.FindFaults(most) {
		all = append(all, fmt.Sprintf("%s: %s", f.At, f.Why))
	}
	return all
}

// checkStarts compares the faults of pods with the wanted ones, of which each is a place and a part of the reason. It also checks that
// a pod has no fault if templates have added nothing to it.
func checkStarts(t *testing.T, cases map[string]startCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.findFaults(t, 100)
			isWanted := func(got, want string) bool {
				at, part, _ := strings.Cut(want, ": ")
				return strings.HasPrefix(got, at+": ") && strings.Contains(got, part)
			}
			if !slices.EqualFunc(got, c.want, isWanted) {
				t.Errorf("%s\nhas the faults\n%s\nwant\n%s", c.spec, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			c.spec = strings.ReplaceAll(c.spec, newTag+" ", "")
			if got := c.findFaults(t, 100); len(got) > 0 {
				t.Errorf("%s\nhas nothing new, and the faults %q", c.spec, got)
			}
		})
	}
}

// TestUser checks which containers the kubelet does not start because they run as root and must not.
func TestUser(t *testing.T) {
	t.Parallel()
	const app, side = "/spec/containers/0/securityContext/runAsNonRoot", "/spec/initContainers/-/securityContext/runAsNonRoot"
	const pod = "/spec/securityContext/runAsNonRoot"
	checkStarts(t, map[string]startCase{
		"the user is new": {
			spec: `{securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {runAsUser: !new 0}}]}`,
			want: []string{pod + ": the container app: the pod's runAsNonRoot is true, but its runAsUser is 0, which is root; set runAsNonRoot: false"},
		},
		"runAsNonRoot is new": {
			spec: `{containers: [{name: app, securityContext: {runAsUser: 0, runAsNonRoot: !new true}}]}`,
			want: []string{app + ": its runAsNonRoot is true, but its runAsUser is 0"},
		},
		"runAsNonRoot is new, and the user is the pod's": {
			spec: `{securityContext: {runAsUser: 0}, containers: [{name: app, securityContext: {runAsNonRoot: !new true}}]}`,
			want: []string{app + ": its runAsNonRoot is true, but the pod's runAsUser is 0"},
		},
		"the whole security context is new": {
			spec: `{securityContext: {runAsUser: 0}, containers: [{name: app, securityContext: !new {runAsNonRoot: true}}]}`,
			want: []string{app + ": its runAsNonRoot is true, but the pod's runAsUser is 0"},
		},
		"the container is new": {
			spec: `{securityContext: {runAsNonRoot: true, runAsUser: 0}, initContainers: [!new {name: side}]}`,
			want: []string{pod + ": the container side: the pod's runAsNonRoot is true, but the pod's runAsUser is 0, which is root; in the template, set another runAsUser"},
		},
		"the new container has both": {
			spec: `{initContainers: [!new {name: side, securityContext: {runAsNonRoot: true, runAsUser: 0}}]}`,
			want: []string{side + ": its runAsNonRoot is true, but its runAsUser is 0"},
		},
		"root without the template, too": {spec: `{securityContext: {runAsUser: 0, runAsNonRoot: true}, containers: [{name: app, securityContext: {runAsUser: !new 0}}]}`},
		"another user":                   {spec: `{securityContext: {runAsUser: 0}, containers: [{name: app, securityContext: {runAsUser: 1, runAsNonRoot: !new true}}]}`},
		"no user":                        {spec: `{containers: [{name: app, securityContext: {runAsNonRoot: !new true}}]}`},
		"runAsNonRoot is false":          {spec: `{securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {runAsNonRoot: false, runAsUser: !new 0}}]}`},
		"something else is new":          {spec: `{containers: [{name: app, securityContext: {runAsNonRoot: true, runAsUser: 0, privileged: !new false}}]}`},
		"null is no user of its own": {
			spec: `{securityContext: {runAsUser: 0}, containers: [{name: app, securityContext: {runAsUser: null, runAsNonRoot: !new true}}]}`,
			want: []string{app + ": but the pod's runAsUser is 0"},
		},
		"an administrator of Windows": {
			os:   "windows",
			spec: `{securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {windowsOptions: {runAsUserName: !new containeradministrator}}}]}`,
			want: []string{pod + `: its runAsUserName is "containeradministrator", which is root`},
		},
		"no name on Windows":                   {os: "windows", spec: `{securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {windowsOptions: {runAsUserName: !new ""}}}]}`},
		"runAsUser means nothing on Windows":   {os: "windows", spec: `{securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {runAsUser: !new 0}}]}`},
		"runAsUserName means nothing on Linux": {spec: `{securityContext: {runAsNonRoot: true}, containers: [{name: app, securityContext: {windowsOptions: {runAsUserName: !new ContainerAdministrator}}}]}`},
	})
}

// TestReferences checks what the kubelet does not find: ports of probes, containers whose resources are read, variables of sub paths.
func TestReferences(t *testing.T) {
	t.Parallel()
	const env = "/spec/containers/0/env"
	checkStarts(t, map[string]startCase{
		"the port of a new probe": {
			spec: `{containers: [{name: app, ports: [{name: web, containerPort: 80}], readinessProbe: !new {httpGet: {port: http}}}]}`,
			want: []string{`/spec/containers/0/ports: in the container app, readinessProbe names the port "http"`},
		},
		"a port that is there": {spec: `{containers: [{name: app, ports: [{name: web, containerPort: 80}], readinessProbe: !new {httpGet: {port: web}}}]}`},
		"the probe of a new container": {
			spec: `{containers: [!new {name: side, livenessProbe: {tcpSocket: {port: http}}}]}`,
			want: []string{`/spec/containers/-/ports: in the container side, livenessProbe names the port "http"`},
		},
		"another field is new": {spec: `{containers: [{name: app, livenessProbe: {tcpSocket: {port: http}}, env: !new [{name: A}]}]}`},
		"a variable that reads a resource": {
			spec: `{containers: [{name: app, env: [!new {name: A, valueFrom: {resourceFieldRef: {containerName: other}}}]}]}`,
			want: []string{env + "/-: the variable A of the container app reads a resource of the container other, which the pod does not have"},
		},
		"all variables are new": {
			spec: `{containers: [{name: app, env: !new [{name: A, valueFrom: {resourceFieldRef: {containerName: other}}}]}]}`,
			want: []string{env + "/-: the variable A of the container app reads a resource of the container other"},
		},
		"a variable of a new container": {
			spec: `{containers: [!new {name: side, env: [{name: A, valueFrom: {resourceFieldRef: {containerName: other}}}]}]}`,
			want: []string{"/spec/containers/-/env/-: the variable A of the container side reads a resource of the container other"},
		},
		"another variable is new":         {spec: `{containers: [{name: app, env: [{name: A, valueFrom: {resourceFieldRef: {containerName: other}}}, !new {name: B}]}]}`},
		"a resource of an init container": {spec: `{initContainers: [{name: other}], containers: [{name: app, env: [!new {name: A, valueFrom: {resourceFieldRef: {containerName: other}}}]}]}`},
		"a resource of its own":           {spec: `{containers: [{name: app, env: [!new {name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}]}`},
		"a volume that reads a resource": {
			spec: `{volumes: [!new {name: info, downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: other}}]}}]}`,
			want: []string{"/spec/volumes/-: the volume info reads a resource of the container other, which the pod does not have"},
		},
		"a source that reads a resource": {
			spec: `{volumes: [!new {name: info, projected: {sources: [{secret: {name: s}}, {downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: other}}]}}]}}]}`,
			want: []string{"/spec/volumes/-: the volume info reads a resource of the container other"},
		},
		"a volume that reads a resource of a container": {spec: `{containers: [{name: app}], volumes: [!new {name: info, downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: app}}]}}]}`},
		"the pod's own volume":                          {spec: `{containers: [!new {name: side}], volumes: [{name: info, downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: other}}]}}]}`},
		"the variable of a new sub path": {
			spec: `{containers: [{name: app, volumeMounts: [!new {name: v, mountPath: /v, subPathExpr: $(A)}]}]}`,
			want: []string{env + ": in the container app, the subPathExpr of the mount at /v reads the variable A, which has no value"},
		},
		"a new variable with which a sub path is absolute": {
			spec: `{containers: [{name: app, envFrom: [{configMapRef: {name: c}}], env: [!new {name: A, value: /a}], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)}]}]}`,
			want: []string{env + ": the mount at /v gives /a, which must be a relative path"},
		},
		"new variables with which a sub path is absolute": {
			spec: `{containers: [{name: app, envFrom: [{configMapRef: {name: c}}], env: !new [{name: A, value: /a}], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)}]}]}`,
			want: []string{env + ": the mount at /v gives /a, which must be a relative path"},
		},
		"one of two sub paths was wrong before": {
			spec: `{containers: [{name: app, envFrom: [{configMapRef: {name: c}}], env: [{name: B, value: /b}, !new {name: A, value: /a}],
				volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(B)}, {name: w, mountPath: /w, subPathExpr: $(A)}]}]}`,
			want: []string{env + ": the mount at /w gives /a"},
		},
		"the sub path of a new container": {
			spec: `{containers: [!new {name: side, volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)}]}]}`,
			want: []string{"/spec/containers/-/env: in the container side, the subPathExpr of the mount at /v reads the variable A"},
		},
		"a sub path that is wrong without the template, too": {spec: `{containers: [{name: app, env: [!new {name: B, value: b}], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)}]}]}`},
		"another mount is new":                               {spec: `{containers: [{name: app, volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)}, !new {name: w, mountPath: /w}]}]}`},
		"a variable of a Service":                            {spec: `{containers: [{name: app, volumeMounts: [!new {name: v, mountPath: /v, subPathExpr: $(WEB_SERVICE_HOST)}]}]}`},
		"a variable of a Service, which the pod does not get": {
			spec: `{enableServiceLinks: false, containers: [{name: app, volumeMounts: [!new {name: v, mountPath: /v, subPathExpr: $(WEB_SERVICE_HOST)}]}]}`,
			want: []string{env + ": reads the variable WEB_SERVICE_HOST, which has no value"},
		},
	})
}

// TestVolumes checks which volumes the kubelet cannot make: claims that are used in two ways, and huge pages that nothing requests.
func TestVolumes(t *testing.T) {
	t.Parallel()
	const volumes = "/spec/volumes"
	const claims = `volumes: [{name: a, persistentVolumeClaim: {claimName: disk}}, {name: b, persistentVolumeClaim: {claimName: disk}}]`
	const requested = `resources: {requests: {hugepages-2Mi: 2Mi}}`
	checkStarts(t, map[string]startCase{
		"a new mount of a device": {
			spec: `{containers: [{name: app, volumeDevices: [{name: a, devicePath: /dev/a}]}, {name: other, volumeMounts: [!new {name: b, mountPath: /b}]}], ` + claims + `}`,
			want: []string{volumes + ": the container other mounts the volume b as a directory, and the container app uses the same claim as a device (volume a)"},
		},
		"a new device of a mount": {
			spec: `{containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}]}, !new {name: side, volumeDevices: [{name: a, devicePath: /dev/a}]}], ` + claims + `}`,
			want: []string{volumes + ": the container app mounts the volume a as a directory, and the container side uses the same claim as a device (volume a)"},
		},
		"one of two devices is new": {
			spec: `{containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}], volumeDevices: [{name: b, devicePath: /dev/b}]}, {name: other, volumeDevices: [!new {name: a, devicePath: /dev/a}]}], ` + claims + `}`,
			want: []string{volumes + ": and the container other uses the same claim as a device"},
		},
		"one fault for each claim": {
			spec: `{containers: [{name: app, volumeMounts: [!new {name: a, mountPath: /a}, !new {name: b, mountPath: /b}], volumeDevices: [{name: b, devicePath: /dev/b}]}], ` + claims + `}`,
			want: []string{volumes + ": mounts the volume a as a directory"},
		},
		"another claim":    {spec: `{containers: [{name: app, volumeDevices: [{name: a, devicePath: /dev/a}], volumeMounts: [!new {name: c, mountPath: /c}]}], volumes: [{name: a, persistentVolumeClaim: {claimName: disk}}, {name: c, persistentVolumeClaim: {claimName: other}}]}`},
		"two mounts":       {spec: `{containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}, !new {name: b, mountPath: /b}]}], ` + claims + `}`},
		"no claim at all":  {spec: `{containers: [{name: app, volumeDevices: [{name: disk, devicePath: /dev/a}], volumeMounts: [!new {name: v, mountPath: /c}]}], volumes: [{name: disk, persistentVolumeClaim: {claimName: v}}, {name: v, emptyDir: {}}]}`},
		"requested pages":  {spec: `{containers: [{name: app, ` + requested + `}], volumes: [!new {name: v, emptyDir: {medium: HugePages-2Mi}}]}`},
		"a page's limit":   {spec: `{containers: [{name: app, resources: {limits: {hugepages-2048Ki: 2Mi}}}], volumes: [!new {name: v, emptyDir: {medium: HugePages-2Mi}}]}`},
		"the pod's pages":  {spec: `{resources: {requests: {hugepages-2Mi: 2Mi}}, volumes: [!new {name: v, emptyDir: {medium: HugePages}}]}`},
		"one size":         {spec: `{initContainers: [{name: i, ` + requested + `}], containers: [{name: app, ` + requested + `}], volumes: [!new {name: v, emptyDir: {medium: HugePages}}]}`},
		"no pages":         {spec: `{containers: [{name: app, resources: {requests: {memory: 2Mi}}}], volumes: [!new {name: v, emptyDir: {medium: HugePages}}]}`, want: []string{volumes + ": the volume v has the medium HugePages, but no container requests huge pages"}},
		"pages in memory":  {spec: `{volumes: [!new {name: v, emptyDir: {medium: Memory}}]}`},
		"pages of no size": {spec: `{containers: [{name: app, ` + requested + `}], volumes: [!new {name: v, emptyDir: {medium: HugePages-x}}]}`, want: []string{volumes + ": no container requests hugepages-x"}},
		"another size": {
			spec: `{containers: [{name: app, ` + requested + `}], volumes: [!new {name: v, emptyDir: {medium: HugePages-1Gi}}]}`,
			want: []string{volumes + ": the volume v has the medium HugePages-1Gi, but no container requests hugepages-1Gi"},
		},
		"a second size is new": {
			spec: `{containers: [{name: app, ` + requested + `}, !new {name: side, resources: {requests: {hugepages-1Gi: 1Gi}}}], volumes: [{name: v, emptyDir: {medium: HugePages}}]}`,
			want: []string{volumes + ": the volume v has the medium HugePages, but containers request huge pages of several sizes"},
		},
		"a second size is new in an old container": {
			spec: `{containers: [{name: app, resources: {requests: {hugepages-2Mi: 2Mi, hugepages-1Gi: !new 1Gi}}}], volumes: [{name: v, emptyDir: {medium: HugePages}}]}`,
			want: []string{volumes + ": the volume v has the medium HugePages, but containers request huge pages of several sizes"},
		},
		"new pages of an old container":           {spec: `{containers: [{name: app, resources: {requests: {hugepages-2Mi: !new 2Mi}}}], volumes: [!new {name: v, emptyDir: {medium: HugePages-2Mi}}]}`},
		"two volumes without a claim":             {spec: `{containers: [{name: app, volumeDevices: [{name: x, devicePath: /dev/x}], volumeMounts: [!new {name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {}}]}`},
		"a second size without the template, too": {spec: `{containers: [{name: app, ` + requested + `}, {name: b, resources: {requests: {hugepages-1Gi: 1Gi}}}, !new {name: side, ` + requested + `}], volumes: [{name: v, emptyDir: {medium: HugePages}}]}`},
	})
}

// TestMounts checks which mounts a container runtime cannot make.
func TestMounts(t *testing.T) {
	t.Parallel()
	const at = "/spec/containers/0/volumeMounts: the container app could not start: "
	const volumes = `volumes: [{name: c, configMap: {name: c, items: [{key: k, path: dir/file}]}}, {name: all, secret: {secretName: s}}, {name: e, emptyDir: {}}, {name: d, persistentVolumeClaim: {claimName: d}},
		{name: hostFile, hostPath: {path: /f, type: File}}, {name: host, hostPath: {path: /h, type: Directory}}, {name: any, hostPath: {path: /x}}]`
	app := func(fields string) string { return `{containers: [{name: app, ` + fields + `}], ` + volumes + `}` }
	mounts := func(items string) string { return app(`volumeMounts: [` + items + `]`) }
	checkStarts(t, map[string]startCase{
		"a directory of the runtime": {
			spec: mounts(`!new {name: e, mountPath: /proc/x}`),
			want: []string{at + "container runtimes allow no volume in /proc; mount it at another path"},
		},
		"a directory of the node in the place of one of the runtime": {spec: mounts(`!new {name: host, mountPath: /dev}`)},
		"Windows":        {os: "windows", spec: mounts(`!new {name: e, mountPath: /proc/x}`)},
		"nothing is new": {spec: app(`volumeMounts: [{name: e, mountPath: /proc/x}], env: [!new {name: A}]`)},
		"a new mount inside of a file": {
			spec: mounts(`{name: c, mountPath: /etc/app, subPath: dir/file}, !new {name: e, mountPath: /etc/app/tmp}`),
			want: []string{at + "the volume e is mounted at /etc/app/tmp, inside of /etc/app, which is a file of the volume c"},
		},
		"a mount inside of a new file": {
			spec: mounts(`!new {name: c, mountPath: /etc/app, subPath: dir/file}, {name: e, mountPath: /etc/app/tmp}`),
			want: []string{at + "the volume e is mounted at /etc/app/tmp, inside of /etc/app"},
		},
		"a mount inside of a new list of mounts": {
			spec: app(`volumeMounts: !new [{name: c, mountPath: /etc/app, subPath: dir/file}, {name: e, mountPath: /etc/app/tmp}]`),
			want: []string{at + "the volume e is mounted at /etc/app/tmp, inside of /etc/app"},
		},
		"a mount inside of the file of a new working directory": {
			spec: app(`workingDir: !new /etc/app/x, volumeMounts: [{name: c, mountPath: /etc/app, subPath: dir/file}]`),
			want: []string{at + "its working directory is /etc/app/x, inside of /etc/app, which is a file of the volume c; change the working directory"},
		},
		"a working directory that is a file": {
			spec: app(`workingDir: !new /etc/app, volumeMounts: [{name: c, mountPath: /etc/app, subPath: dir/file}]`),
			want: []string{at + "its working directory is /etc/app, where a file of the volume c is mounted; change the working directory"},
		},
		"a working directory that is a directory":     {spec: app(`workingDir: !new /etc/app, volumeMounts: [{name: c, mountPath: /etc/app}]`)},
		"a working directory that may be a directory": {spec: app(`workingDir: !new /x, volumeMounts: [{name: any, mountPath: /x}]`)},
		"a message in a working directory": {
			spec: app(`terminationMessagePath: !new /a/dir/x, workingDir: /a/dir, volumeMounts: [{name: c, mountPath: /a}]`),
			want: []string{at + "the file for the termination message is mounted at /a/dir/x, inside of the volume c at /a"},
		},
		"a fault of old mounts":                 {spec: app(`workingDir: !new /w, volumeMounts: [{name: e, mountPath: /proc/x}]`)},
		"a mount inside of a working directory": {spec: app(`workingDir: /etc/app, volumeMounts: [!new {name: e, mountPath: /etc/app/x}]`)},
		"a file of a hostPath": {
			spec: mounts(`{name: hostFile, mountPath: /f}, !new {name: e, mountPath: /f/x}`),
			want: []string{at + "the volume e is mounted at /f/x, inside of /f, which is a file of the volume hostFile"},
		},
		"a hostPath without a type":  {spec: mounts(`{name: any, mountPath: /f}, !new {name: e, mountPath: /f/x}`)},
		"a directory of a hostPath":  {spec: mounts(`{name: host, mountPath: /f}, !new {name: e, mountPath: /f/x}`)},
		"a directory in a directory": {spec: mounts(`{name: c, mountPath: /etc/app}, !new {name: e, mountPath: /etc/app/tmp}`)},
		"a file in a directory that the kubelet writes": {
			spec: mounts(`{name: c, mountPath: /etc/app}, !new {name: c, mountPath: /etc/app/x, subPath: dir/file}`),
			want: []string{at + "a file of the volume c is mounted at /etc/app/x, inside of the volume c at /etc/app, which is read-only and does not have that file"},
		},
		"a file in the place of a file":   {spec: mounts(`{name: c, mountPath: /etc/app}, !new {name: c, mountPath: /etc/app/dir/file, subPath: dir/file}`)},
		"a message in the place of a key": {spec: app(`terminationMessagePath: !new /s/x, volumeMounts: [{name: all, mountPath: /s}]`)},
		"a message below a key": {
			spec: app(`terminationMessagePath: !new /s/x/y, volumeMounts: [{name: all, mountPath: /s}]`),
			want: []string{at + "the file for the termination message is mounted at /s/x/y, inside of the volume all at /s, which is read-only and does not have that file"},
		},
		"a message in the place of a file": {spec: app(`terminationMessagePath: !new /s/dir/file, volumeMounts: [{name: c, mountPath: /s}]`)},
		"a message in the place of a directory": {
			spec: app(`terminationMessagePath: !new /s/dir, volumeMounts: [{name: c, mountPath: /s}]`),
			want: []string{at + "the file for the termination message is mounted at /s/dir, inside of the volume c at /s"},
		},
		"a directory in the place of a key": {
			spec: mounts(`{name: all, mountPath: /s}, !new {name: e, mountPath: /s/x}`),
		},
		"a read-only empty volume": {
			spec: mounts(`{name: e, mountPath: /e, readOnly: true}, !new {name: c, mountPath: /e/x}`),
			want: []string{at + "the volume c is mounted at /e/x, inside of the volume e at /e, which is read-only and does not have that directory"},
		},
		"a path of unknown kind": {
			spec: mounts(`{name: e, mountPath: /e, readOnly: true}, !new {name: any, mountPath: /e/x}`),
			want: []string{at + "the volume any is mounted at /e/x, inside of the volume e at /e, which is read-only and does not have that path"},
		},
		"an empty volume with a part that is not known": {
			spec: app(`env: [{name: X, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}], volumeMounts: [{name: e, mountPath: /e, readOnly: true}, {name: e, mountPath: /z, readOnly: true, subPathExpr: $(X)}, !new {name: c, mountPath: /e/x}]`),
		},
		"a mount inside of a key": {
			spec: mounts(`{name: all, mountPath: /k, subPath: key}, !new {name: e, mountPath: /k/x}`),
			want: []string{at + "the volume e is mounted at /k/x, inside of /k, which is a file of the volume all"},
		},
		"a writable empty volume":                            {spec: mounts(`{name: e, mountPath: /e}, !new {name: c, mountPath: /e/x}`)},
		"an empty volume that another container writes":      {spec: `{containers: [{name: app, volumeMounts: [{name: e, mountPath: /e, readOnly: true}, !new {name: c, mountPath: /e/x}]}, {name: other, volumeMounts: [{name: e, mountPath: /e}]}], ` + volumes + `}`},
		"a part of an empty volume that another mount makes": {spec: mounts(`{name: e, mountPath: /e, readOnly: true}, {name: e, mountPath: /y, subPath: x, readOnly: true}, !new {name: c, mountPath: /e/x}`)},
		"a read-only claim":                                  {spec: mounts(`{name: d, mountPath: /d, readOnly: true}, !new {name: c, mountPath: /d/x}`)},
		"a sub path inside of a file": {
			spec: mounts(`!new {name: c, mountPath: /x, subPath: dir/file/below}`),
			want: []string{at + "the sub path dir/file/below of the volume c is inside of dir/file, which is a file; correct the sub path"},
		},
		"the expression of a sub path inside of a file": {
			spec: app(`env: [{name: A, value: file}], volumeMounts: [!new {name: c, mountPath: /x, subPathExpr: dir/$(A)/below}]`),
			want: []string{at + "the sub path dir/file/below of the volume c is inside of dir/file, which is a file"},
		},
		"a sub path beside a file": {spec: mounts(`!new {name: c, mountPath: /x, subPath: dir/other}`)},
		"the whole volume":         {spec: mounts(`!new {name: c, mountPath: /x, subPath: ./}, {name: e, mountPath: /x/y}`)},
		"a directory in the place of a file of the runtime": {
			spec: mounts(`!new {name: e, mountPath: /etc/hosts}`),
		},
		"a file of the runtime in a read-only volume": {
			spec: mounts(`!new {name: c, mountPath: /etc}`),
			want: []string{
				at + "the file with the pod's host name is mounted at /etc/hostname, inside of the volume c at /etc",
				at + "the pod's file of host names is mounted at /etc/hosts, inside of the volume c at /etc",
				at + "the file with the DNS servers is mounted at /etc/resolv.conf, inside of the volume c at /etc",
			},
		},
		"keys are no files of the runtime": {
			spec: mounts(`!new {name: all, mountPath: /etc}`),
			want: []string{at + "the file with the pod's host name is", at + "the pod's file of host names is", at + "the file with the DNS servers is"},
		},
		"the termination message in a new directory": {
			spec: mounts(`!new {name: e, mountPath: /dev/termination-log}`),
			want: []string{at + "the file for the termination message is mounted at /dev/termination-log, too; mount it at another path"},
		},
		"another termination message": {
			spec: app(`terminationMessagePath: !new /e/log, volumeMounts: [{name: e, mountPath: /e/log}]`),
			want: []string{at + "the file for the termination message is mounted at /e/log, too"},
		},
		"two mounts beside each other": {spec: mounts(`{name: c, mountPath: /a, subPath: dir/file}, !new {name: e, mountPath: /ab}, !new {name: e, mountPath: /a-b/c}`)},
		"a path that sorts between": {
			spec: mounts(`{name: c, mountPath: /a, subPath: dir/file}, {name: e, mountPath: /a-b}, !new {name: e, mountPath: /a/c}`),
			want: []string{at + "the volume e is mounted at /a/c, inside of /a"},
		},
		"a path that sorts between, in another order": {
			spec: mounts(`!new {name: e, mountPath: /a/c}, {name: e, mountPath: /a-b}, {name: c, mountPath: /a, subPath: dir/file}`),
			want: []string{at + "the volume e is mounted at /a/c, inside of /a"},
		},
		"a relative path": {
			spec: mounts(`{name: c, mountPath: a, subPath: dir/file}, !new {name: e, mountPath: a/b}`),
			want: []string{at + "the volume e is mounted at /a/b, inside of /a"},
		},
	})
}

// TestVolumeFiles checks what is known of the content of volumes: the files that the kubelet writes, the directories that it creates
// for mounts of all containers, and what only the node knows.
func TestVolumeFiles(t *testing.T) {
	t.Parallel()
	const at = "/spec/containers/0/volumeMounts: the container app could not start: "
	const uid = `env: [{name: X, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}], `
	const volumes = `volumes: [{name: c, configMap: {items: [{key: k, path: dir/file}]}}, {name: flat, configMap: {items: [{key: k, path: f}]}}, {name: all, secret: {secretName: s}},
		{name: both, projected: {sources: [{configMap: {items: [{key: k, path: f}]}}, {secret: {name: s}}]}}, {name: none, downwardAPI: {}},
		{name: e, emptyDir: {}}, {name: e2, emptyDir: {}}, {name: d, persistentVolumeClaim: {claimName: d}}, {name: hostFile, hostPath: {path: /f, type: File}}]`
	two := func(fields, other string) string {
		return `{containers: [{name: app, ` + fields + `}, {name: other, ` + other + `}], ` + volumes + `}`
	}
	app := func(fields string) string { return two(fields, `image: x`) }
	message := func(path, mounts string) string {
		return app(`terminationMessagePath: !new ` + path + `, volumeMounts: [` + mounts + `]`)
	}
	lacks := func(path string) []string {
		return []string{at + "the file for the termination message is mounted at " + path + ", inside of the volume"}
	}
	isDirectory := []string{at + "the file for the termination message is mounted at /e, too"}
	checkStarts(t, map[string]startCase{
		"the directory of a file":                {spec: app(`workingDir: !new /a/dir, volumeMounts: [{name: c, mountPath: /a}]`)},
		"a file as a directory":                  {spec: app(`workingDir: !new /a/dir/file, volumeMounts: [{name: c, mountPath: /a}]`), want: []string{at + "its working directory is /a/dir/file, inside of the volume c at /a, which is read-only and does not have that directory"}},
		"a directory around a mount":             {spec: app(`workingDir: !new /a/x, volumeMounts: [{name: c, mountPath: /a}, {name: e, mountPath: /a/x/y}]`)},
		"a directory for a mount hides files":    {spec: two(`terminationMessagePath: !new /b/dir/file, volumeMounts: [{name: c, mountPath: /b}]`, `volumeMounts: [{name: c, mountPath: /a}, {name: e, mountPath: /a/dir}]`), want: lacks("/b/dir/file")},
		"a directory around a mount hides files": {spec: two(`terminationMessagePath: !new /b/dir/file, volumeMounts: [{name: c, mountPath: /b}]`, `volumeMounts: [{name: c, mountPath: /a}, {name: e, mountPath: /a/dir/x}]`), want: lacks("/b/dir/file")},
		"a sub path below a key":                 {spec: app(`workingDir: !new /s/key, volumeMounts: [{name: all, mountPath: /s}, {name: all, mountPath: /t, subPath: key/below}]`)},
		"a directory in the place of a key":      {spec: app(`workingDir: !new /s/key, volumeMounts: [{name: all, mountPath: /s}]`), want: []string{at + "its working directory is /s/key, inside of the volume all at /s"}},
		"a file beside keys":                     {spec: app(`volumeMounts: [!new {name: both, mountPath: /x, subPath: f/below}]`), want: []string{at + "the sub path f/below of the volume both is inside of f, which is a file"}},
		"a longer name than a file":              {spec: app(`volumeMounts: [!new {name: c, mountPath: /x, subPath: dir/files}]`)},
		"no files at all":                        {spec: message("/n/x", `{name: none, mountPath: /n}`), want: lacks("/n/x")},
		"the kubelet's own links":                {spec: message("/a/..data/x", `{name: c, mountPath: /a}`)},
		"a file below a sub path":                {spec: message("/a/file", `{name: c, mountPath: /a, subPath: dir}`)},
		"no file below a sub path":               {spec: message("/a/dir", `{name: c, mountPath: /a, subPath: dir}`), want: lacks("/a/dir")},
		"two volumes":                            {spec: two(`volumeMounts: [{name: e, mountPath: /w, readOnly: true}, !new {name: d, mountPath: /w/x}, {name: e2, mountPath: /y, readOnly: true}, !new {name: d, mountPath: /y/x}]`, `volumeMounts: [{name: e, mountPath: /w}]`), want: []string{at + "the volume d is mounted at /y/x, inside of the volume e2"}},
		"a volume that was written before":       {spec: `{initContainers: [{name: first, volumeMounts: [{name: e, mountPath: /e}]}], containers: [{name: app, volumeMounts: [{name: e, mountPath: /e, readOnly: true}, !new {name: d, mountPath: /e/x}]}], ` + volumes + `}`},
		"an unknown file among files":            {spec: app(uid + `terminationMessagePath: !new /a/x, volumeMounts: [{name: flat, mountPath: /a}, {name: flat, mountPath: /b, subPathExpr: $(X)}]`), want: lacks("/a/x")},
		"an unknown path among directories":      {spec: app(uid + `terminationMessagePath: !new /a/x, volumeMounts: [{name: c, mountPath: /a}, {name: c, mountPath: /b, subPathExpr: $(X)}]`)},
		"inside of an unknown file":              {spec: app(uid + `volumeMounts: [{name: flat, mountPath: /a, subPathExpr: $(X)}, !new {name: e, mountPath: /a/x}]`), want: []string{at + "the volume e is mounted at /a/x, inside of /a, which is a file of the volume flat"}},
		"inside of an unknown path":              {spec: app(uid + `volumeMounts: [{name: c, mountPath: /a, subPathExpr: $(X)}, !new {name: e, mountPath: /a/x}]`)},
		"inside of two unknown elements":         {spec: app(uid + `volumeMounts: [{name: flat, mountPath: /a, subPathExpr: $(X)/$(X)}, !new {name: e, mountPath: /a/x}]`)},
		"a part of a file of the node":           {spec: app(`volumeMounts: [{name: hostFile, mountPath: /f, subPath: x}, !new {name: e, mountPath: /f/y}]`)},
		"an unknown part of it":                  {spec: app(uid + `volumeMounts: [{name: hostFile, mountPath: /f, subPathExpr: $(X)}, !new {name: e, mountPath: /f/y}]`)},
		"a part of an empty volume":              {spec: message("/e", `{name: e, mountPath: /e, readOnly: true, subPath: p}`), want: isDirectory},
		"a part of a claim":                      {spec: message("/e", `{name: d, mountPath: /e, subPath: p}`)},
		"an unknown part of a volume":            {spec: app(uid + `terminationMessagePath: !new /e, volumeMounts: [{name: e, mountPath: /e, readOnly: true, subPathExpr: $(X)}]`)},
	})
}

// TestManyMounts checks that mounts of a container with more paths than are compared with each other are checked in the same way.
func TestManyMounts(t *testing.T) {
	t.Parallel()
	var others strings.Builder
	for i := range 40 {
		fmt.Fprintf(&others, "{name: e, mountPath: /m%d}, ", i)
	}
	spec := func(last string) string {
		return `{containers: [{name: app, volumeMounts: [` + others.String() + `{name: c, mountPath: /a, subPath: f}, !new {name: e, mountPath: ` + last +
			`}]}], volumes: [{name: e, emptyDir: {}}, {name: c, configMap: {items: [{path: f}]}}]}`
	}
	checkStarts(t, map[string]startCase{
		"inside":  {spec: spec("/a/b"), want: []string{"/spec/containers/0/volumeMounts: the volume e is mounted at /a/b, inside of /a"}},
		"beside":  {spec: spec("/ab")},
		"message": {spec: spec("/dev/termination-log"), want: []string{"/spec/containers/0/volumeMounts: the file for the termination message is mounted at /dev/termination-log, too"}},
	})
}

// TestTokenMount checks mounts around the mount of the API token that the ServiceAccount plugin adds after Pillion.
func TestTokenMount(t *testing.T) {
	t.Parallel()
	const at = "/spec/containers/0/volumeMounts: the container app could not start: "
	const path = "/var/run/secrets/kubernetes.io/serviceaccount"
	spec := func(mounts string) string {
		return `{containers: [{name: app, volumeMounts: [` + mounts + `]}], volumes: [{name: c, configMap: {items: [{path: f}]}}, {name: e, emptyDir: {}}]}`
	}
	checkStarts(t, map[string]startCase{
		"a directory in it": {token: true, spec: spec(`!new {name: e, mountPath: ` + path + `/x}`)},
		"a new list with a file in it": {
			token: true, spec: `{containers: [{name: app, volumeMounts: !new [{name: c, mountPath: ` + path + `/x, subPath: f}]}], volumes: [{name: c, configMap: {items: [{path: f}]}}]}`,
			want: []string{at + "a file of the volume c is mounted at " + path + "/x, inside of the volume of the API token"},
		},
		"a new list with a file around it": {
			token: true, spec: `{containers: [{name: app, volumeMounts: !new [{name: c, mountPath: /var/run, subPath: f}]}], volumes: [{name: c, configMap: {items: [{path: f}]}}]}`,
			want: []string{at + "the volume of the API token is mounted at " + path},
		},
		"a file in it": {
			token: true, spec: spec(`!new {name: c, mountPath: ` + path + `/x, subPath: f}`),
			want: []string{at + "a file of the volume c is mounted at " + path + "/x, inside of the volume of the API token at " + path + ", which is read-only and does not have that file"},
		},
		"a working directory in it": {
			token: true, spec: `{containers: [{name: app, workingDir: !new ` + path + `/x, volumeMounts: [{name: e, mountPath: /e}]}], volumes: [{name: e, emptyDir: {}}]}`,
			want: []string{at + "its working directory is " + path + "/x, inside of the volume of the API token"},
		},
		"without a token":      {spec: spec(`!new {name: c, mountPath: ` + path + `/x, subPath: f}`)},
		"a mount in its place": {token: true, spec: spec(`{name: e, mountPath: ` + path + `}, !new {name: c, mountPath: ` + path + `/x, subPath: f}`)},
		"it is inside of a file": {
			token: true, spec: spec(`!new {name: c, mountPath: /var/run, subPath: f}`),
			want: []string{at + "the volume of the API token is mounted at " + path + ", inside of /var/run, which is a file of the volume c"},
		},
		"a working directory in it, of a new container": {
			token: true, spec: `{initContainers: [!new {name: app, workingDir: ` + path + `/x}]}`,
			want: []string{"/spec/initContainers/-/volumeMounts: its working directory is " + path + "/x, inside of the volume of the API token"},
		},
		"an old working directory in it": {
			token: true, spec: `{containers: [{name: app, workingDir: ` + path + `/x, volumeMounts: !new [{name: e, mountPath: /e}]}], volumes: [{name: e, emptyDir: {}}]}`,
		},
		"a working directory in it, without a token":     {spec: `{initContainers: [!new {name: app, workingDir: ` + path + `/x}]}`},
		"a termination message in the place of its file": {token: true, spec: `{containers: [{name: app, terminationMessagePath: !new ` + path + `/token}]}`},
		"a termination message in it": {
			token: true, spec: `{containers: [{name: app, terminationMessagePath: !new ` + path + `/log}]}`,
			want: []string{at + "the file for the termination message is mounted at " + path + "/log, inside of the volume of the API token"},
		},
	})
}

// TestMostFaults checks that no more faults are returned than wanted.
func TestMostFaults(t *testing.T) {
	t.Parallel()
	c := startCase{spec: `{containers: [!new {name: a, livenessProbe: {tcpSocket: {port: x}}, readinessProbe: {tcpSocket: {port: x}}, startupProbe: {tcpSocket: {port: x}}}]}`}
	for most := range 4 {
		if got := c.findFaults(t, most); len(got) != most {
			t.Errorf("at most %d faults are wanted, and there are %q", most, got)
		}
	}
}

// TestParts checks what of a fault another template may have added: the containers, the mounts, and the user.
func TestParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec       string
		containers string
		mounts     int
		user       bool
		pod        bool // whether the pod's own value at the place is known
	}{
		"user":   {spec: `{containers: [{name: app, securityContext: {runAsNonRoot: true, runAsUser: !new 0}}]}`, containers: "app", user: true, pod: true},
		"root":   {spec: `{containers: [{name: app, securityContext: {runAsUser: 0, runAsNonRoot: !new true}}]}`, containers: "app", user: true},
		"mounts": {spec: `{containers: [{name: app, volumeMounts: [{name: c, mountPath: /a, subPath: f}, !new {name: c, mountPath: /a/b}]}], volumes: [{name: c, configMap: {items: [{path: f}]}}]}`, containers: "app", mounts: 2, pod: true},
		"both":   {spec: `{containers: [!new {name: side, volumeMounts: [{name: c, mountPath: /a, subPath: f}, {name: c, mountPath: /a/b}]}], volumes: [{name: c, configMap: {items: [{path: f}]}}]}`, containers: "side", mounts: 2},
		"device": {spec: `{containers: [{name: a, volumeDevices: [{name: d, devicePath: /d}]}, {name: b, volumeMounts: [!new {name: d, mountPath: /d}]}]}`, containers: "b a", mounts: 2},
		"port":   {spec: `{containers: [{name: app, ports: [{name: web}], livenessProbe: !new {tcpSocket: {port: x}}}]}`, pod: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := parseSpec(t, c.spec)
			pod := kubelet.Pod{Spec: spec, OS: "linux", Volumes: specVolumes{spec: spec}}
			all := pod.FindFaults(2)
			if len(all) != 1 {
				t.Fatalf("%d faults", len(all))
			}
			f := all[0]
			if got := strings.Join(f.Parts.Containers, " "); got != c.containers || len(f.Parts.Mounts) != c.mounts || f.Parts.User != c.user || (f.Pod != nil) != c.pod {
				t.Errorf("containers %q, %d mounts, user %v, pod %v", got, len(f.Parts.Mounts), f.Parts.User, f.Pod)
			}
		})
	}
}

// TestLists checks that all lists of containers are checked.
func TestLists(t *testing.T) {
	t.Parallel()
	for _, list := range schema.ContainerLists() {
		c := startCase{spec: `{` + list + `: [{name: first}, !new {name: side, livenessProbe: {tcpSocket: {port: x}}}]}`}
		if got := c.findFaults(t, 9); len(got) != 1 || !strings.HasPrefix(got[0], "/spec/"+list+"/") {
			t.Errorf("%s: %q", list, got)
		}
	}
}
