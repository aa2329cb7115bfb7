// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/validation"
)

// TestTokens checks that a container has the same at the path of the API token, whether the file of the pod was injected or the
// webhook injects. The pod may bring some of the template's containers itself.
func TestTokens(t *testing.T) {
	customized := 0
	for seed := range uint64(size.Choose(t, 2000, 20000)) {
		m := newMaker(seed, 79)
		container := func(name string) object {
			c := object{"name": name, "image": "i:1"}
			if m.in(2) {
				c["volumeMounts"] = []any{object{"name": "own", "mountPath": validation.TokenPath}}
			}
			return c
		}
		spec := object{"containers": []any{container("app")}, "volumes": []any{object{"name": "own", "emptyDir": object{}}}}
		annotations := object{}
		for _, name := range []string{"k0", "k1", "l0"} {
			if m.in(2) {
				list := map[string]string{"k": "containers", "l": "initContainers"}[name[:1]]
				there, _ := spec[list].([]any)
				spec[list] = append(there, container(name))
			}
		}
		for _, template := range []string{"t0", "t1"} {
			if !m.in(3) {
				annotations[template+".pillion.dev/customize"] = "true"
			}
		}
		if m.in(4) {
			spec["automountServiceAccountToken"] = m.in(2)
		}
		var all []*templates.Template
		for i, containers := range []string{"containers: [{name: k0, image: s}, {name: k1, image: s}]", "initContainers: [{name: l0, image: s, restartPolicy: Always}]"} {
			found, problems := templates.Parse("t", fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {default: true, serviceAccountToken: %s, pod: {spec: {%s}}}}",
				i, pick(m, "None", "Inherit"), containers))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			all = append(all, found...)
		}
		injector := inject.New(templates.NewSet(all))
		podJSON := compact(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web", "annotations": annotations}, "spec": spec})
		run := func(pod *corev1.Pod, file bool) (*corev1.Pod, []inject.Decision) {
			text, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: namespace}, Object: text, File: file, Written: file})
			if err != nil {
				t.Fatal(err)
			}
			return typed(t, patched(t, text, r.Patch())), r.Decisions
		}
		pod := typed(t, podJSON)
		byWebhook, decisions := run(withToken(pod), false)
		fromFile, _ := run(pod, true)
		throughWebhook, again := run(withToken(fromFile), false)
		if a, b := tokensOf(withToken(byWebhook)), tokensOf(withToken(throughWebhook)); !slices.Equal(a, b) {
			t.Fatalf("seed %d: the webhook gives %v, and a file %v\n%s\n%v\n%v\n%s", seed, a, b, all[0].Spec.ServiceAccountToken+" "+all[1].Spec.ServiceAccountToken, decisions, again, podJSON)
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			had := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == validation.TokenPath })
			if auto := pod.Spec.AutomountServiceAccountToken; !had && c.Name != "app" && (auto == nil || *auto) {
				customized++
				if !slices.Contains(tokensOf(byWebhook), c.Name+" token") {
					t.Fatalf("seed %d: the user's container %s lost the token\n%s", seed, c.Name, podJSON)
				}
			}
		}
	}
	if customized < 100 {
		t.Errorf("only %d containers", customized)
	}
}

// tokensOf returns for each container what it has at the path of the token.
func tokensOf(pod *corev1.Pod) (all []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.MountPath == validation.TokenPath {
				name := m.Name
				if strings.HasPrefix(name, validation.TokenVolumePrefix) {
					name = "token"
				}
				all = append(all, c.Name+" "+name)
			}
		}
	}
	slices.Sort(all)
	return all
}
