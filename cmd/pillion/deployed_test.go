// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestDeployed: what explain and status go by is what the Deployment's pods run with.
func TestDeployed(t *testing.T) {
	const system = "/api/v1/namespaces/pillion-system/configmaps"
	const deployment = "/apis/apps/v1/namespaces/pillion-system/deployments/pillion"
	mounts := map[string]string{"/etc/pillion/templates": "pillion-templates", "/etc/pillion/config": "pillion-config", "/etc/pillion/more/": "more-templates"}
	serve := []any{"serve", "--templates=/etc/pillion/templates"}
	cases := map[string]struct {
		command, args []any
		env           map[string]string
		config        string
		want          string // templates, or the error
		excluded      string
		warned        []string
	}{
		"flags": {args: append(serve, "--template-configmaps", "a=b", "--listen=:8443", "--exclude-namespace=x"), want: "agent one two", excluded: "x", warned: []string{
			"A ConfigMap cannot be used, so it is left out here; where its last good content is in use, that is not told: configmap/bad/bad.yaml:1: ",
			"Of two templates with the same name the other one is used: configmap/young/agent.yaml:3: metadata.name: the template agent is in configmap/pillion-templates/agent.yaml too, on line 3.",
		}},
		"command":  {command: []any{"/pillion", "serve"}, args: []any{"-t", "/etc/pillion/templates/agent.yaml", "-t", "/etc/pillion/more"}, want: "agent more"},
		"variable": {args: append(serve, "--unknown-yet"), env: map[string]string{"PILLION_TEMPLATE_CONFIGMAPS": "a=b", "PILLION_CONFIG": ""}, want: "agent one two"},
		"file":     {args: []any{"serve", "--config", "/etc/pillion/config/pillion.yaml"}, config: "templates: [/etc/pillion/templates]\ntemplate-configmaps: a=b\ntemplate-namespace: elsewhere\nexclude-namespace: [y]\n", want: "agent else", excluded: "y"},
		"variable over file": {
			args: append(serve, "--config=/etc/pillion/config/pillion.yaml"), env: map[string]string{"PILLION_TEMPLATE_NAMESPACE": "elsewhere"},
			config: "templates: [none]\ntemplate-configmaps: a=b\ntemplate-namespace: nowhere\n", want: "agent else",
		},
		"wrong file":     {args: append(serve, "--config=/etc/pillion/config/pillion.yaml"), config: "lisen: :1", want: "the Deployment pillion-system/pillion: /etc/pillion/config/pillion.yaml:1: lisen: unknown key; did you mean listen?"},
		"from elsewhere": {args: append(serve, "--templates=/data"), want: "the templates cannot be used:\nthe pods of Pillion have /data from elsewhere than a whole ConfigMap; use --templates PATH"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newPagedAPI(0)
			put := func(namespace, name string, data map[string]any) map[string]any {
				m := thing("v1", "ConfigMap", namespace, name, nil)
				m["data"] = data
				return m
			}
			list := func(path string, items ...map[string]any) {
				api.lists[path], api.length[path] = func(i int) map[string]any { return items[i] }, len(items)
			}
			api.objects[system+"/pillion-config"] = put("pillion-system", "pillion-config", map[string]any{"pillion.yaml": c.config})
			api.objects[system+"/more-templates"] = put("pillion-system", "more-templates", map[string]any{"more.yaml": template("more"), "README.md": "#"})
			young := put("pillion-system", "young", map[string]any{"agent.yaml": template("agent"), "two.yaml": template("two")})
			young["metadata"].(map[string]any)["creationTimestamp"] = "2026-01-01T00:00:00Z"
			list(system+"?a=b", young, put("pillion-system", "one", map[string]any{"one.yaml": template("one")}), put("pillion-system", "bad", map[string]any{"bad.yaml": "x"}))
			list("/api/v1/namespaces/elsewhere/configmaps?a=b", put("elsewhere", "else", map[string]any{"else.yaml": template("else")}))
			container := map[string]any{"name": "pillion", "command": c.command, "args": c.args}
			var env, volumes, volumeMounts []any
			for name, value := range c.env {
				env = append(env, map[string]any{"name": name, "value": value})
			}
			for path, name := range mounts {
				volumes = append(volumes, map[string]any{"name": name, "configMap": map[string]any{"name": name}})
				volumeMounts = append(volumeMounts, map[string]any{"name": name, "mountPath": path})
			}
			container["env"], container["volumeMounts"] = env, volumeMounts
			d := thing("apps/v1", "Deployment", "pillion-system", "pillion", nil)
			d["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{"name": "proxy"}, container}, "volumes": volumes,
			}}}
			api.objects[deployment] = d

			got, excluded, stderr := goesBy(t, api, c.excluded)
			if got != c.want || excluded != (c.excluded != "") {
				t.Errorf("%q, excluded: %t; want %q", got, excluded, c.want)
			}
			for _, w := range c.warned {
				if strings.Count(stderr, w) != 1 {
					t.Errorf("it does not say once %q: %s", w, stderr)
				}
			}
			if len(c.warned) == 0 && c.want == "agent else" && stderr != "" {
				t.Errorf("it says %s", stderr)
			}
		})
	}
	t.Run("no Deployment", func(t *testing.T) {
		t.Parallel()
		if got, _, _ := goesBy(t, newPagedAPI(0), ""); got != "agent" {
			t.Errorf("%q", got)
		}
	})
	t.Run("not for everyone", func(t *testing.T) {
		t.Parallel()
		api := newPagedAPI(0)
		api.forbids[deployment] = 2
		got, _, stderr := goesBy(t, api, "")
		if got != "agent" || !strings.HasPrefix(stderr, "You may not read the Deployment pillion in the namespace pillion-system, so ") {
			t.Errorf("%q: %s", got, stderr)
		}
	})
}

// goesBy is what commands go by: the names of templates or the
// error, and whether a namespace is excluded.
func goesBy(t *testing.T, api *pagedAPI, namespace string) (names string, excluded bool, notes string) {
	t.Helper()
	o := &cluster.Options{}
	o.Flags(&cobra.Command{}, nil)
	o.Kubeconfig = api.kubeconfig(t)
	c, err := o.Connect()
	must(t, err)
	var wrong cluster.Unsure
	injector, err := c.NewInjector(t.Context(), nil, func(text string) { notes += text + "\n" }, &wrong)
	notes += strings.Join(wrong.Problems, "\n")
	if err != nil {
		return err.Error(), false, notes
	}
	result, err := injector.Inject(inject.Request{Operation: "CREATE", Namespace: templates.Namespace{Name: namespace}, Object: []byte(shopPod)})
	must(t, err)
	for _, t := range injector.Set().Templates {
		names += t.Name + " "
	}
	return strings.TrimSpace(names), strings.Contains(fmt.Sprint(result.Decisions), "excluded_namespace"), notes
}
