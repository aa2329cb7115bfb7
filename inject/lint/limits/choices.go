// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/lint/sample"
)

// probe is a value that no user has chosen. If it appears in a field, users can choose the field.
type probe struct {
	text  string
	finds func(pod *corev1.Pod, text string) []string // the fields with it, in words
}

var probes = []probe{
	{"registry.invalid/sample/image:1", chosenImages},
	{"registry.invalid/sample/image", chosenImages}, // the template adds a tag
	{"/sample/any/path", chosenPaths},
	{"sample -c 'any; $(command)'", chosenCommands},
	{"sample-command", chosenCommands},
}

// findChoices returns which fields with a meaning for security users can choose freely: images, commands, and paths of the host. It
// returns one sentence for each field and parameter.
func (a *attempt) findChoices() (all []string) {
	known := map[string]bool{}
	for _, name := range a.settableParams() {
		for _, probe := range probes {
			to, ok := sample.SetParams(a.template, a.from, sample.Settings{name: {Value: probe.text}})
			if !ok {
				continue
			}
			if a.left--; a.left < maxTries/2 {
				return all
			}
			r := a.now.injectAgain(to)
			if !r.Decisions[0].Code.Succeeded() {
				continue
			}
			for _, field := range probe.finds(r.pod, probe.text) {
				sentence := fmt.Sprintf("%s can choose %s freely; limit it by enum or a narrower pattern", describeParams([]ParamValue{newParamValue(a.template, name, sample.Setting{})}), field)
				if !known[sentence] {
					known[sentence] = true
					all = append(all, sentence)
				}
			}
		}
	}
	return all
}

func chosenImages(pod *corev1.Pod, text string) (fields []string) {
	repository, _, _ := strings.Cut(text, ":")
	for _, c := range containersOf(pod) {
		if strings.Contains(c.Image, repository) {
			fields = append(fields, "the image of the container "+c.Name)
		}
	}
	return fields
}

func chosenPaths(pod *corev1.Pod, text string) (fields []string) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.HostPath != nil && strings.Contains(v.HostPath.Path, text) {
			fields = append(fields, "the path of the host in the volume "+v.Name)
		}
	}
	return fields
}

func chosenCommands(pod *corev1.Pod, text string) (fields []string) {
	for _, c := range containersOf(pod) {
		commands := [][]string{slices.Concat(c.Command, c.Args)}
		if len(c.Command) == 0 {
			commands[0] = nil // the program is that of the image
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.Exec != nil {
				commands = append(commands, p.Exec.Command)
			}
		}
		if c.Lifecycle != nil {
			for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
				if hook != nil && hook.Exec != nil {
					commands = append(commands, hook.Exec.Command)
				}
			}
		}
		for _, command := range commands {
			if isChosen(command, text) {
				fields = append(fields, "what the container "+c.Name+" runs")
				break
			}
		}
	}
	return fields
}

// isShell reports whether a command is a shell that runs its arguments as a script.
func isShell(command []string) bool {
	return len(command) > 0 && strings.HasSuffix(command[0], "sh") && slices.ContainsFunc(command, func(arg string) bool { return strings.HasPrefix(arg, "-") && strings.HasSuffix(arg, "c") })
}

// isChosen reports whether a string chooses the program, or is a part of a script. The value of a flag is neither.
func isChosen(command []string, text string) bool {
	if len(command) == 0 {
		return false
	}
	return strings.HasPrefix(command[0], text) || isShell(command[:min(len(command), 2)]) && slices.ContainsFunc(command, func(arg string) bool { return strings.Contains(arg, text) })
}
