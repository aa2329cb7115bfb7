// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// policyCases are the pods besides those of [shapes].
func policyCases() []podCase {
	cases := []podCase{
		{"the defaults", func(*corev1.Pod) {}},
		{"opted out", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }},
		{"host network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		{"host network allowed", func(p *corev1.Pod) { p.Spec.HostNetwork = true; requests("+host,device")(p) }},
		{"Windows", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
		{"Windows by node selector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"} }},
		{"Linux in words", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Linux} }},
		{"condition true", func(p *corev1.Pod) { p.Labels["accelerator"] = "yes" }},
		{"container's name taken", takenContainer},
		{"init container's name taken", func(p *corev1.Pod) { p.Spec.InitContainers[0].Name = "logger" }},
		{"mount path taken", takenMountPath},
		{"mount path taken with a slash", func(p *corev1.Pod) { takenMountPath(p); p.Spec.Containers[0].VolumeMounts[0].MountPath += "/" }},
		{"mount path taken in other words", func(p *corev1.Pod) {
			takenMountPath(p)
			p.Spec.Containers[0].VolumeMounts[0].MountPath = "/var/./log//app"
		}},
		{"volume's name taken", takenVolume},
		{"the same volume", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "app-logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "app-logs", MountPath: "/var/log/app"}, {Name: "app-logs", MountPath: "/mine"}}
		}},
		{"port of the node taken", takenHostPort},
		{"port of the node taken on its network", func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			requests("host")(p)
			p.Spec.Containers[0].Ports[0].ContainerPort = 9100
		}},
		{"token declined", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			eachContainer(p, func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "mine", MountPath: tokenPath}} })
		}},
		{"no init containers", func(p *corev1.Pod) { p.Spec.InitContainers = nil }},
		{"preset record", func(p *corev1.Pod) { p.Annotations["logger.pillion.dev/injected"] = "000000000000" }},
		{"toleration is there", func(p *corev1.Pod) {
			requests("device")(p)
			p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		}},
		{"another toleration", func(p *corev1.Pod) {
			requests("device")(p)
			p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
		}},
		{"two behind the others", requests("proxy,host")},
		{"a bit of everything", requests("medley")},
		{"and more", func(p *corev1.Pod) { requests("medley")(p); p.Spec.Hostname = "host" }},
		{"shared already", func(p *corev1.Pod) {
			requests("medley")(p)
			p.Spec.ShareProcessNamespace = new(false)
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.2", Hostnames: []string{"mine.example.com"}}}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1)), SupplementalGroups: []int64{8, 9}}
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mine"}, {Name: "registry"}}
			p.Spec.Tolerations = []corev1.Toleration{{Key: "b", Value: "c"}, {Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "mine"}}}}
		}},
		{"the node's processes", func(p *corev1.Pod) { requests("medley")(p); p.Spec.HostPID = true }},
		{"one left out", func(p *corev1.Pod) {
			requests("medley")(p)
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ALONE", Value: "yes"}}
		}},
		{"an expression fails", func(p *corev1.Pod) { requests("medley")(p); delete(p.Labels, "app") }},
		{"a label's value is not valid", func(p *corev1.Pod) { requests("medley")(p); overrides("medley", "kind", "a b")(p) }},
		{"a user is not valid", func(p *corev1.Pod) { requests("medley")(p); overrides("medley", "runAs", "-1")(p) }},
		{"the same projected volume", func(p *corev1.Pod) {
			requests("medley")(p)
			p.Spec.Volumes = []corev1.Volume{projected("a")}
		}},
		{"another projected volume", func(p *corev1.Pod) {
			requests("medley")(p)
			p.Spec.Volumes = []corev1.Volume{projected("b")}
		}},
		{"both ends", requests("medley,proxy,bare,gpu")},
		{"both ends without init containers", func(p *corev1.Pod) { requests("medley,proxy,bare")(p); p.Spec.InitContainers = nil }},
		{"many templates", func(p *corev1.Pod) { requests("+gpu,proxy,bare,echo")(p); p.Labels["accelerator"] = "yes" }},
		{"many parameters", func(p *corev1.Pod) {
			requests("fluent-bit")(p)
			for name, value := range map[string]string{
				"host": "logs.example.com", "port": "24225", "tls": "true", "tag": "a.b", "directory": "/srv/logs", "files": "*.txt",
				"container": "worker", "maxSize": "2Gi", "healthPort": "3030", "cpu": "0.1", "memory": "128Mi",
			} {
				overrides("fluent-bit", name, value)(p)
			}
		}},
		{"directory of the state", func(p *corev1.Pod) {
			requests("fluent-bit")(p)
			overrides("fluent-bit", "host", "logs.example.com")(p)
			overrides("fluent-bit", "directory", "/var/lib/fluent-bit")(p)
		}},
		{"directory of the token", func(p *corev1.Pod) {
			requests("fluent-bit")(p)
			overrides("fluent-bit", "host", "logs.example.com")(p)
			overrides("fluent-bit", "directory", tokenPath)(p)
		}},
		{"a parameter is missing", requests("fluent-bit")},
		{"a large pod", func(p *corev1.Pod) {
			requests("keeper")(p)
			for i := range 100 {
				c := corev1.Container{Name: fmt.Sprintf("c-%d", i), Image: "registry.example/web:1"}
				for j := range 50 {
					c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("NAME_%d", j), Value: "value"})
				}
				for j := range 20 {
					name := fmt.Sprintf("volume-%d", j)
					if i == 0 {
						p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
					}
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/srv/" + name})
				}
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}},
	}
	for _, list := range []string{"", " ", "proxy", "logger", "+proxy", "-logger", "+proxy, -logger", " + proxy", "proxy,-proxy", "-proxy,proxy", "loggers,my-logger", ",logger,", "tokenless", "tokenless,bare", "keeper", "guard", "device", "seen"} {
		cases = append(cases, podCase{fmt.Sprintf("templates %q", list), requests(list)})
	}
	for _, v := range [][3]string{
		{"logger", "level", "loud"},
		{"logger", "level", ""},
		{"logger", "level", "debug"},
		{"logger", "cpu", "much"},
		{"logger", "cpu", "-1"},
		{"logger", "cpu", "1"},
		{"logger", "cpu", "0.1"},
		{"echo", "text", "\"quotes\" and \\ and\nlines and ☃ ${params.text}"},
		{"echo", "text", strings.Repeat("ä", 128)},
		{"echo", "text", strings.Repeat("ä", 129)},
		{"seen", "mark", "pods may not"},
	} {
		cases = append(cases, podCase{fmt.Sprintf("%s's %s is %.20q", v[0], v[1], v[2]), func(p *corev1.Pod) {
			requests("+" + v[0])(p)
			overrides(v[0], v[1], v[2])(p)
		}})
	}
	for _, v := range [][2]string{
		{"port", "0"},
		{"port", "65536"},
		{"port", "x"},
		{"port", "+80"},
		{"port", "00080"},
		{"port", "99999999999999999999"},
		{"tls", "yes"},
		{"tag", "a b"},
		{"maxSize", "1Ki"},
		{"directory", "logs"},
		{"container", "web"},
		{"host", ""},
	} {
		cases = append(cases, podCase{fmt.Sprintf("fluent-bit's %s is %q", v[0], v[1]), func(p *corev1.Pod) {
			requests("fluent-bit")(p)
			overrides("fluent-bit", "host", "logs.example.com")(p)
			overrides("fluent-bit", v[0], v[1])(p)
		}})
	}
	for template, values := range libraryParams() {
		if !slices.Contains(policyTemplates(), template) {
			continue
		}
		cases = append(cases, podCase{template, func(p *corev1.Pod) {
			requests(template)(p)
			for name, value := range values {
				overrides(template, name, value)(p)
			}
		}})
	}
	return cases
}

// projected is the volume of the template medley, with the file at a path.
func projected(path string) corev1.Volume {
	config := &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: "config"},
		Optional:             new(true), Items: []corev1.KeyToPath{{Key: "a", Path: path}},
	}
	labels := &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}
	return corev1.Volume{Name: "medley-data", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ConfigMap: config}, {DownwardAPI: labels}}},
	}}
}

// carefulCases are the pods that the webhook injects into, or fills in, and a policy leaves alone.
func carefulCases() []podCase {
	return []podCase{
		{"brings its own container", customized},
		{"has the very container", func(p *corev1.Pod) {
			requests("bare")(p)
			p.Spec.InitContainers = append([]corev1.Container{{
				Name: "bare", Image: "registry.example/bare:4", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
			}}, p.Spec.InitContainers...)
		}},
		{"a path in other words", func(p *corev1.Pod) {
			takenMountPath(p)
			p.Spec.Containers[0].VolumeMounts[0].MountPath = "/srv/../data"
		}},
		{"a parameter's path in other words", func(p *corev1.Pod) {
			requests("fluent-bit")(p)
			overrides("fluent-bit", "host", "logs.example.com")(p)
			overrides("fluent-bit", "directory", "/a/../b")(p)
		}},
	}
}

// libraryParams returns values for the parameters of each template that ships with Pillion, at least for those without
// a default. They are the values of the pods in the templates' own tests.
func libraryParams() map[string]map[string]string {
	files, err := filepath.Glob("../templates/library/tests/*_test.yaml")
	if err != nil {
		panic(err)
	}
	all := map[string]map[string]string{}
	for _, file := range files {
		var suite struct {
			Pod struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(data, &suite)
		}
		if err != nil {
			panic(err)
		}
		template, values := strings.TrimSuffix(filepath.Base(file), "_test.yaml"), map[string]string{}
		for key, value := range suite.Pod.Metadata.Annotations {
			if name, ok := strings.CutPrefix(key, template+".pillion.dev/"); ok {
				values[name] = value
			}
		}
		all[template] = values
	}
	return all
}
