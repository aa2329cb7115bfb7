// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestDeployed checks that explain and status use the flags and templates of the Deployment's pods.
func TestDeployed(t *testing.T) {
	const system = "/api/v1/namespaces/pillion-system/configmaps"
	const templatesPath = system + "/pillion-templates"
	const deployment = "/apis/apps/v1/namespaces/pillion-system/deployments/pillion"
	agent := configMap("pillion-templates", map[string]string{"agent.yaml": clitest.AgentTemplate})
	mounts := map[string]string{"/etc/pillion/templates": "pillion-templates", "/etc/pillion/config": "pillion-config", "/etc/pillion/more/": "more-templates"}
	arguments := []string{"serve", "--templates=/etc/pillion/templates"}
	cases := map[string]struct {
		command, args []string
		env           map[string]string
		config        string
		objects       bool
		want          string // templates, or the error
		excluded      string
		warned        []string
	}{
		"flags": {args: append(arguments, "--listen=:8443", "--exclude-namespace=x"), objects: true, want: "agent one team-a/two", excluded: "x", warned: []string{
			"A template is invalid, so this report ignores it. Pillion may still use its last valid content: clustersidecartemplate/bad: spec: ",
			"Two templates have the same name, so Pillion ignores this one: clustersidecartemplate/agent: metadata.name: the template agent is also in configmap/pillion-templates/agent.yaml:3.",
		}},
		"command":  {command: []string{"/pillion", "serve"}, args: []string{"-t", "/etc/pillion/templates/agent.yaml", "-t", "/etc/pillion/more"}, want: "agent more"},
		"variable": {args: []string{"serve", "--unknown-yet"}, env: map[string]string{"PILLION_TEMPLATES": "/etc/pillion/templates", "PILLION_CONFIG": ""}, want: "agent"},
		"file":     {args: []string{"serve", "--config", "/etc/pillion/config/pillion.yaml"}, config: "templates: [/etc/pillion/more]\nexclude-namespace: [y]\n", want: "more", excluded: "y"},
		"variable over file": {
			args: []string{"serve", "--config=/etc/pillion/config/pillion.yaml"}, env: map[string]string{"PILLION_TEMPLATES": "/etc/pillion/more"},
			config: "templates: [none]\n", want: "more",
		},
		"wrong file":     {args: append(arguments, "--config=/etc/pillion/config/pillion.yaml"), config: "lisen: :1", want: "the Deployment pillion-system/pillion: /etc/pillion/config/pillion.yaml:1: lisen: unknown key; did you mean listen?"},
		"from elsewhere": {args: append(arguments, "--templates=/data"), want: "the templates are unknown: the pods of Pillion do not mount /data from a complete ConfigMap; use --templates PATH"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container := corev1.Container{Name: "pillion", Command: c.command, Args: c.args}
			pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy"}, container}}
			for path, name := range mounts {
				pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
				}})
				pod.Containers[1].VolumeMounts = append(pod.Containers[1].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
			}
			for name, value := range c.env {
				pod.Containers[1].Env = append(pod.Containers[1].Env, corev1.EnvVar{Name: name, Value: value})
			}
			api := clitest.API{
				templatesPath:              agent,
				system + "/pillion-config": configMap("pillion-config", map[string]string{"pillion.yaml": c.config}),
				system + "/more-templates": configMap("more-templates", map[string]string{"more.yaml": clitest.Template("more"), "README.md": "#"}),
				deployment:                 appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
			}
			if c.objects {
				broken := templateObject("ClusterSidecarTemplate", "", "bad")
				delete(broken, "spec")
				api["/apis/pillion.dev/v1alpha1/clustersidecartemplates"] = listOf(templateObject("ClusterSidecarTemplate", "", "one"), templateObject("ClusterSidecarTemplate", "", "agent"), broken)
				api["/apis/pillion.dev/v1alpha1/sidecartemplates"] = listOf(templateObject("SidecarTemplate", "team-a", "two"))
			}
			got, excluded, notes := goesBy(t, api, c.excluded)
			if got != c.want || excluded != (c.excluded != "") {
				t.Errorf("%q, excluded: %t; want %q", got, excluded, c.want)
			}
			for _, w := range c.warned {
				if strings.Count(notes, w) != 1 {
					t.Errorf("it does not say once %q: %s", w, notes)
				}
			}
			if len(c.warned) == 0 && c.want == "more" && notes != "" {
				t.Errorf("it says %s", notes)
			}
		})
	}
	t.Run("one namespace", func(t *testing.T) {
		t.Parallel()
		api := clitest.API{
			templatesPath: agent, "/apis/pillion.dev/v1alpha1/clustersidecartemplates": listOf(templateObject("ClusterSidecarTemplate", "", "one")),
			"/apis/pillion.dev/v1alpha1/sidecartemplates":                   nil,
			"/apis/pillion.dev/v1alpha1/namespaces/team-a/sidecartemplates": listOf(templateObject("SidecarTemplate", "team-a", "two")),
		}
		const forbidden = "You are not allowed to list sidecartemplates, so these templates are unknown: "
		if got, _, notes := goesBy(t, api, ""); got != "agent one" || !strings.Contains(notes, forbidden) {
			t.Errorf("all namespaces: %q: %s", got, notes)
		}
		if got, _, notes := goesBy(t, api, "", "team-a"); got != "agent one team-a/two" || strings.Contains(notes, forbidden) {
			t.Errorf("team-a: %q: %s", got, notes)
		}
	})
	t.Run("unused", func(t *testing.T) {
		t.Parallel()
		shared := templateObject("SidecarTemplate", "team-a", "shared")
		shared["metadata"].(map[string]any)["generation"] = 3
		shared["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "NameTaken", "observedGeneration": 3}}}
		changed := templateObject("SidecarTemplate", "team-a", "changed")
		changed["metadata"].(map[string]any)["generation"] = 4
		changed["status"] = shared["status"]
		failed := templateObject("SidecarTemplate", "team-b", "t00")
		failed["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Degraded", "status": "True", "reason": "Failed", "message": "pod web-0 crashes."}}}
		broken := templateObject("SidecarTemplate", "team-a", "broken")
		delete(broken, "spec")
		all := []any{templateObject("SidecarTemplate", "team-a", "agent"), shared, changed, broken}
		for i := range kube.NewLimits().Count {
			all = append(all, templateObject("SidecarTemplate", "team-b", fmt.Sprintf("t%02d", i)))
		}
		all = append(all, templateObject("SidecarTemplate", "team-b", "u"))
		all[4] = failed
		api := clitest.API{
			templatesPath: agent, "/apis/pillion.dev/v1alpha1/clustersidecartemplates": nil, // these may not be read
			"/apis/pillion.dev/v1alpha1/sidecartemplates": listOf(all...),
		}
		got, _, notes := goesBy(t, api, "")
		if !strings.HasPrefix(got, "agent team-a/changed team-b/t00 ") || !strings.HasSuffix(got, " team-b/t49") {
			t.Errorf("%q", got)
		}
		for _, want := range []string{
			"Pillion does not use sidecartemplate/team-a/agent: the ClusterSidecarTemplate of this name takes precedence (configmap/pillion-templates/agent.yaml:3); use another name.\n",
			"Pillion does not use sidecartemplate/team-a/shared: the ClusterSidecarTemplate of this name takes precedence (clustersidecartemplate/shared); use another name.\n",
			"The automatic rollout of sidecartemplate/team-b/t00 has stopped: pod web-0 crashes.\n",
			"Pillion does not use sidecartemplate/team-b/u: of a namespace, Pillion uses only the oldest 50 templates, and those with at most 128 KiB together, which take at most 6 MiB of memory.\n",
			"A template is invalid, so this report ignores it. Pillion may still use its last valid content: sidecartemplate/team-a/broken: ",
			"You are not allowed to list clustersidecartemplates, so these templates are unknown: ask for the verb list on the resource clustersidecartemplates, or use --templates PATH.", // the only problem
		} {
			if strings.Count(notes, want) != 1 {
				t.Errorf("it does not say once %q: %s", want, notes)
			}
		}
		if lines := strings.Count(notes, "\n"); lines != 6 { // these, and how to get the right
			t.Errorf("%d notes: %s", lines, notes)
		}
	})
	t.Run("no Deployment", func(t *testing.T) {
		t.Parallel()
		if got, _, _ := goesBy(t, clitest.API{templatesPath: agent}, ""); got != "agent" {
			t.Errorf("%q", got)
		}
	})
	t.Run("deleted kinds", func(t *testing.T) {
		t.Parallel()
		const want = "The API server does not serve clustersidecartemplates.pillion.dev and sidecartemplates.pillion.dev, so these templates are unknown: "
		got, _, notes := goesBy(t, clitest.API{templatesPath: agent, deployment + "-controller": appsv1.Deployment{}}, "")
		if got != "agent" || strings.Count(notes, want) != 1 {
			t.Errorf("%q: %s", got, notes)
		}
		if _, _, notes := goesBy(t, clitest.API{templatesPath: agent}, ""); strings.Contains(notes, "does not serve") { // kinds that were never installed
			t.Error(notes)
		}
	})
	t.Run("not for everyone", func(t *testing.T) {
		t.Parallel()
		got, _, notes := goesBy(t, clitest.API{templatesPath: agent, deployment: nil}, "")
		if got != "agent" || !strings.HasPrefix(notes, "You are not allowed to read the Deployment pillion in the namespace pillion-system, so ") {
			t.Errorf("%q: %s", got, notes)
		}
	})
}

// goesBy is what commands go by: the names of templates, or the
// error, and whether a namespace is excluded.
func goesBy(t *testing.T, api clitest.API, namespace string, about ...string) (names string, excluded bool, notes string) {
	t.Helper()
	o := &Options{}
	o.Flags(&cobra.Command{})
	o.Kubeconfig = clitest.Kubeconfig(t, api)
	c, err := o.Connect()
	clitest.Must(t, err)
	c.About(about...)
	var wrong unsure
	injector, err := c.newInjector(t.Context(), nil, func(text string) { notes += text + "\n" }, &wrong)
	notes += strings.Join(wrong.problems, "\n")
	if err != nil {
		return err.Error(), false, notes
	}
	result, err := injector.Inject(inject.Request{Operation: "CREATE", Namespace: request.Namespace{Name: namespace}, Object: []byte(`{"spec":{"containers":[{"name":"web"}]}}`)})
	clitest.Must(t, err)
	for _, t := range injector.All().Templates {
		names += t.ID() + " "
	}
	return strings.TrimSpace(names), strings.Contains(fmt.Sprint(result.Decisions), "excluded_namespace"), notes
}

func templateObject(kind, namespace, name string) map[string]any {
	return map[string]any{
		"apiVersion": "pillion.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{"pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": "b"}}}},
	}
}

func listOf(items ...any) map[string]any {
	return map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "List", "metadata": map[string]any{}, "items": items}
}

func configMap(name string, data map[string]string) corev1.ConfigMap {
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "pillion-system"}, Data: data}
}
