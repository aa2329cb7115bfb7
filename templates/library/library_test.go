// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/templatetest"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/library"
	"github.com/pillion-dev/pillion/templates/library/tests"
	"github.com/pillion-dev/pillion/templates/request"
)

// load returns the templates of every installation, and those for identities in a cloud.
func load(t *testing.T) []*templates.Template {
	t.Helper()
	set, err := templates.Load(
		templates.Source{FS: library.FS, Name: ".", Path: "library"},
		templates.Source{FS: os.DirFS("."), Name: "cloud", Path: "library/cloud"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return set.Templates
}

// render returns the fragment, decoded strictly.
func render(t *testing.T, tmpl *templates.Template) corev1.Pod {
	t.Helper()
	pod, err := jsontree.Parse([]byte(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	in := &cel.Input{Pod: pod, Namespace: request.Namespace{Name: "shop", Annotations: tests.Params()}}
	in.ServiceAccount = &request.ServiceAccount{Name: "default", Annotations: map[string]string{
		"eks.amazonaws.com/role-arn":        "arn:aws:iam::123456789012:role/shop",
		"azure.workload.identity/client-id": "11111111-2222-3333-4444-555555555555",
		"azure.workload.identity/tenant-id": "66666666-7777-8888-9999-000000000000",
	}}
	values, err := tmpl.Values(nil, nil, &in.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := tmpl.Render(in, values)
	if err != nil {
		t.Fatal(err)
	}
	var fragment corev1.Pod
	if err := yaml.UnmarshalStrict(rendered.AppendTo(nil), &fragment); err != nil {
		t.Fatal(err)
	}
	return fragment
}

// TestTemplates checks what every template of the library promises.
func TestTemplates(t *testing.T) {
	for _, tmpl := range load(t) {
		t.Run(tmpl.Name, func(t *testing.T) {
			if tmpl.Spec.Default || tmpl.Spec.Required {
				t.Error("is injected without being asked for")
			}
			// Only those in cloud may make an installation watch ServiceAccounts.
			watches := templates.NewSet([]*templates.Template{tmpl}).ReadsServiceAccount()
			if dir, file := path.Split(tmpl.File); file != tmpl.Name+".yaml" || (dir == "library/cloud/") != watches {
				t.Errorf("is in %s", tmpl.File)
			}
			if !strings.Contains(strings.Join(strings.Fields(tmpl.Spec.Description), " "), "a Guaranteed pod stays Guaranteed") {
				t.Error("the description does not say what becomes of the pod's QoS class")
			}
			for _, p := range tmpl.Spec.Params {
				if p.Type == "" {
					t.Errorf("parameter %s has no type", p.Name)
				}
				if words := strings.Fields(p.Description); len(words) < 4 || !strings.HasSuffix(p.Description, ".") {
					t.Errorf("parameter %s has the description %q, which is no sentence", p.Name, p.Description)
				}
				if p.Type == "string" && p.Pattern == "" && p.Enum == nil {
					t.Errorf("parameter %s takes any text", p.Name)
				}
			}
			fragment := render(t, tmpl)
			for _, c := range slices.Concat(fragment.Spec.InitContainers, fragment.Spec.Containers) {
				checkContainer(t, c)
			}
			checkRestricted(t, fragment)
		})
	}
}

func checkContainer(t *testing.T, c corev1.Container) {
	t.Helper()
	if !regexp.MustCompile(`^[a-z0-9.]+(/[a-z0-9-]+)+:v?\d+\.\d+(\.\d+|b\d+)(-[a-z]+)*(-\d+)?$`).MatchString(c.Image) {
		t.Errorf("image %s is not of a registry, or not pinned to a release", c.Image)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
		if request.IsZero() || !request.Equal(limit) {
			t.Errorf("%s: request %s and limit %s would cost a pod its Guaranteed class", name, request.String(), limit.String())
		}
	}
	sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	if sidecar && c.StartupProbe == nil && c.ReadinessProbe == nil && c.Name != "litestream" {
		t.Error("nothing shows that it is up")
	}
	if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.RunAsUser == nil {
		t.Error("has no readOnlyRootFilesystem or no runAsUser")
	}
}

// checkRestricted adds the fragment to a pod with a restricted container. The
// pod itself has no security context.
func checkRestricted(t *testing.T, fragment corev1.Pod) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var app corev1.Container
	if err := json.Unmarshal([]byte(`{"name":"web","securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,
		"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}}`), &app); err != nil {
		t.Fatal(err)
	}
	fragment.Spec.Containers = append(fragment.Spec.Containers, app)
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &fragment.ObjectMeta, &fragment.Spec))
	if !result.Allowed {
		t.Errorf("not restricted: %s (%s)", result.ForbiddenReason(), result.ForbiddenDetail())
	}
}

// TestOpenTelemetryCollector checks that the collector's configuration is YAML, and each variable
// in it is one of the container's.
func TestOpenTelemetryCollector(t *testing.T) {
	fragment := render(t, byName(t, "opentelemetry-collector"))
	c := fragment.Spec.InitContainers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	config := env["COLLECTOR_CONFIG"]
	if err := yaml.Unmarshal([]byte(config), &map[string]any{}); err != nil {
		t.Errorf("the configuration: %v", err)
	}
	used := regexp.MustCompile(`\$\{env:([A-Z_]+)\}`).FindAllStringSubmatch(config, -1)
	for _, match := range used {
		if _, ok := env[match[1]]; !ok {
			t.Errorf("the configuration reads %s, which the container does not have", match[1])
		}
	}
	if len(used) != len(env)-1 || strings.Count(config, "$") != len(used) {
		t.Errorf("%d variables are read, %d are there", len(used), len(env)-1)
	}
}

// TestLines checks that no line of a template is longer than 120 characters.
func TestLines(t *testing.T) {
	for _, tmpl := range load(t) {
		text, err := os.ReadFile(strings.TrimPrefix(tmpl.File, "library/"))
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			if number++; len(strings.TrimSuffix(line, "\n")) > 120 {
				t.Errorf("%s:%d: %d characters", tmpl.File, number, len(line)-1)
			}
		}
	}
}

// TestCases checks that each template has a test file. The file sets every parameter, and has pods
// that get the template and pods that do not.
func TestCases(t *testing.T) {
	for _, tmpl := range load(t) {
		file := strings.TrimPrefix(path.Dir(tmpl.File)+"/tests/"+tmpl.Name+"_test.yaml", "library/")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		s, problems := templatetest.Parse(file, data)
		if len(problems) > 0 {
			t.Error(problems)
			continue
		}
		var expected, golden string
		for i := range s.Cases {
			expected += s.Cases[i].Expect.Decisions[tmpl.Name] + "\n"
			golden += s.Cases[i].Expect.Golden
		}
		codes := []string{"injected", "not_requested", "invalid_parameter: ", "conflict: "}
		if tmpl.Spec.Match.Condition != "" {
			codes = append(codes, "condition_false")
		}
		for _, code := range codes {
			if !strings.Contains(expected, code) {
				t.Errorf("%s: no case expects %s", file, code)
			}
		}
		if golden == "" {
			t.Errorf("%s: no case expects a golden file", file)
		}
		for _, p := range tmpl.Spec.Params {
			if !strings.Contains(string(data), tmpl.Annotation(p.Name)+":") {
				t.Errorf("%s: no case sets %s", file, p.Name)
			}
		}
	}
}

func byName(t *testing.T, name string) *templates.Template {
	t.Helper()
	all := load(t)
	i := slices.IndexFunc(all, func(tmpl *templates.Template) bool { return tmpl.Name == name })
	if i < 0 {
		t.Fatalf("no template %s", name)
	}
	return all[i]
}

// TestReadme checks that the README's table has every template, with every parameter.
func TestReadme(t *testing.T) {
	readme, err := fs.ReadFile(os.DirFS("."), "README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			_, name, _ := strings.Cut(cells[1], "`")
			name, _, _ = strings.Cut(name, "`")
			rows[name] = line
		}
	}
	for _, tmpl := range load(t) {
		row := rows[tmpl.Name]
		for _, p := range tmpl.Spec.Params {
			cell := "`" + p.Name + "`"
			if p.Default == nil && !p.Optional {
				cell = "**" + cell + "**"
			}
			if !strings.Contains(row, cell) {
				t.Errorf("the row of %s lacks %s", tmpl.Name, cell)
			}
		}
	}
}

// TestLocalVolumes checks that the cluster autoscaler may remove the node of a pod with a template, unless the template's volumes
// have data that may not have been sent yet.
func TestLocalVolumes(t *testing.T) {
	unsent := []string{"fluent-bit", "vector", "litestream"}
	for _, tmpl := range load(t) {
		pod := render(t, tmpl)
		listed := strings.Split(pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"], ",")
		for _, v := range pod.Spec.Volumes {
			local := v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory
			want := local && !slices.Contains(unsent, tmpl.Name)
			if is := slices.Contains(listed, v.Name); is != want {
				t.Errorf("%s: the volume %s is listed: %v", tmpl.Name, v.Name, is)
			}
		}
	}
}
