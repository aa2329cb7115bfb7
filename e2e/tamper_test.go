// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// tampering is one thing that another webhook does to what Pillion has added.
type tampering struct {
	name string
	// edit does it, given the name of the template and of its container.
	edit func(p *corev1.Pod, template string)
	// repaired: Pillion puts it back if it is called once more.
	repaired bool
	// finding is "<code> at <start of a path>" of what remains.
	finding string
	// verdict is what becomes of the pod whatever the template's mode is, if that does not count.
	verdict string
}

// tampered are the templates that are tampered with.
func tampered() []string { return []string{"guard", "watch", "keeper", "sealed"} }

const sidecarPath = "/spec/initContainers/0"

// tamperings are all of one kind of damage each. Kubernetes itself must find the pod valid after each.
func tamperings() []tampering {
	return slices.Concat(takenAway(), changedInContainer(), addedToContainer(), misled())
}

func takenAway() []tampering {
	return []tampering{
		{"container removed", withoutContainer, true, "missing at /spec/initContainers/-", ""},
		{"container renamed", renameContainer, true, "missing at /spec/initContainers/-", ""},
		{"restartPolicy stripped", inContainer(func(c *corev1.Container) { c.RestartPolicy = nil }), true, "missing at " + sidecarPath + "/restartPolicy", ""},
		{"mount of the sidecar stripped", func(p *corev1.Pod, template string) {
			stripMount(findContainer(p, template), "/"+template)
		}, true, "missing at " + sidecarPath + "/volumeMounts/-", ""},
		{"mount of the app stripped", func(p *corev1.Pod, template string) {
			stripMount(&p.Spec.Containers[0], "/var/"+template)
		}, true, "missing at /spec/containers/0/volumeMounts/-", ""},
		{"variable removed", inContainer(func(c *corev1.Container) { c.Env = nil }), true, "missing at " + sidecarPath + "/env", ""},
		{"port removed", inContainer(func(c *corev1.Container) { c.Ports = nil }), true, "missing at " + sidecarPath + "/ports", ""},
		{"security context removed", inContainer(func(c *corev1.Container) { c.SecurityContext = nil }), true, "missing at " + sidecarPath + "/securityContext", ""},
		{"volume removed", withoutVolume, true, "missing at /spec/volumes/-", ""},
		{"annotation removed", withoutAnnotation, true, "missing at /metadata/annotations/TEMPLATE.pillion.dev~1injected", ""},
		{"annotation and container removed", func(p *corev1.Pod, template string) {
			withoutContainer(p, template)
			withoutAnnotation(p, template)
		}, true, "not_injected at /spec/initContainers/-", denied},
		{"all of it removed", func(p *corev1.Pod, template string) {
			withoutContainer(p, template)
			withoutVolume(p, template)
			withoutAnnotation(p, template)
		}, true, "not_injected at /spec/initContainers/-", denied},
	}
}

func changedInContainer() []tampering {
	return []tampering{
		{"image swapped", inContainer(swapImage), false, "altered at " + sidecarPath + "/image", ""},
		{"variable changed", inContainer(func(c *corev1.Container) { c.Env[0].Value = "/elsewhere" }), false, "altered at " + sidecarPath + "/env/0", ""},
		{"arguments changed", inContainer(func(c *corev1.Container) { c.Args = []string{"--level=debug"} }), false, "altered at " + sidecarPath + "/args", ""},
		{"made privileged", inContainer(func(c *corev1.Container) {
			c.SecurityContext.Privileged = new(true)
			c.SecurityContext.AllowPrivilegeEscalation = new(true) // does not go with false
		}), false, "altered at " + sidecarPath + "/securityContext/", ""},
		{"allowed to be root", inContainer(func(c *corev1.Container) { c.SecurityContext.RunAsNonRoot = new(false) }), false, "altered at " + sidecarPath + "/securityContext/runAsNonRoot", ""},
		{"volume of the host in its place", func(p *corev1.Pod, template string) {
			for i := range p.Spec.Volumes {
				if p.Spec.Volumes[i].Name == template+"-data" {
					p.Spec.Volumes[i] = hostPathVolume(template + "-data")
				}
			}
		}, false, "conflict at /spec/volumes/", ""},
		{"moved to the containers", func(p *corev1.Pod, template string) {
			moved := *findContainer(p, template)
			moved.RestartPolicy = nil
			withoutContainer(p, template)
			p.Spec.Containers = append(p.Spec.Containers, moved)
		}, false, "conflict at /spec/containers/2", ""},
	}
}

func addedToContainer() []tampering {
	return []tampering{
		{"variable added", inContainer(func(c *corev1.Container) {
			c.Env = append(c.Env[:1], corev1.EnvVar{Name: "LD_PRELOAD", Value: "/tmp/evil.so"})
		}), false, "altered at " + sidecarPath + "/env/1", ""},
		{"command added", inContainer(func(c *corev1.Container) { c.Command = []string{"sh", "-c", "true"} }), false, "altered at " + sidecarPath + "/command", ""},
		{"capability added", inContainer(func(c *corev1.Container) {
			c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		}), false, "altered at " + sidecarPath + "/securityContext/capabilities/add", ""},
		{"user set", inContainer(func(c *corev1.Container) { c.SecurityContext.RunAsUser = new(int64(1000)) }), false, "altered at " + sidecarPath + "/securityContext/runAsUser", ""},
		{"mount added", func(p *corev1.Pod, template string) {
			const name = "host"
			if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
				p.Spec.Volumes = append(p.Spec.Volumes, hostPathVolume(name))
			}
			c := findContainer(p, template)
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/host"})
		}, false, "altered at " + sidecarPath + "/volumeMounts/", ""},
		{"port of the node added", inContainer(func(c *corev1.Container) { c.Ports[0].HostPort = 15090 }), false, "altered at " + sidecarPath + "/ports/0", ""},
	}
}

// misled are the attempts to have Pillion look for something else.
func misled() []tampering {
	return []tampering{
		{"unknown revision and another image", func(p *corev1.Pod, template string) {
			p.Annotations[template+".pillion.dev/injected"] = "0123456789ab"
			swapImage(findContainer(p, template))
		}, false, "altered at " + sidecarPath + "/image", ""},
		{"marked as the user's own and another image", func(p *corev1.Pod, template string) {
			p.Annotations[template+".pillion.dev/customize"] = "true"
			swapImage(findContainer(p, template))
		}, false, "altered at " + sidecarPath + "/image", ""},
		{"parameter changed after the fact", func(p *corev1.Pod, template string) {
			overrides(template, "level", "debug")(p)
		}, false, "altered at " + sidecarPath + "/args", ""},
		{"value that is not allowed", func(p *corev1.Pod, template string) {
			overrides(template, "level", "loud")(p)
		}, false, "invalid_parameter: the pod's annotation TEMPLATE.pillion.dev/level is", ""},
		{"parameter misspelled", func(p *corev1.Pod, template string) {
			overrides(template, "levl", "info")(p)
		}, false, "unknown_parameter: the annotation TEMPLATE.pillion.dev/levl sets", ""},
	}
}

func findContainer(p *corev1.Pod, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

func inContainer(edit func(*corev1.Container)) func(*corev1.Pod, string) {
	return func(p *corev1.Pod, template string) { edit(findContainer(p, template)) }
}

func withoutContainer(p *corev1.Pod, template string) {
	named := func(c corev1.Container) bool { return c.Name == template }
	p.Spec.InitContainers = slices.DeleteFunc(p.Spec.InitContainers, named)
	p.Spec.Containers = slices.DeleteFunc(p.Spec.Containers, named)
}

// renameContainer leaves the port to the one that Pillion may add in its place.
func renameContainer(p *corev1.Pod, template string) {
	withoutContainer(p, "renamed")
	c := findContainer(p, template)
	c.Name, c.Ports = "renamed", nil
}

func stripMount(c *corev1.Container, path string) {
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
}

func swapImage(c *corev1.Container) { c.Image = "registry.example/evil:1" }

func hostPathVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}
}

// withoutVolume takes the mounts away too, without which the pod is not valid.
func withoutVolume(p *corev1.Pod, template string) {
	eachContainer(p, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == template+"-data" })
	})
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == template+"-data" })
}

func withoutAnnotation(p *corev1.Pod, template string) {
	delete(p.Annotations, template+".pillion.dev/injected")
}
