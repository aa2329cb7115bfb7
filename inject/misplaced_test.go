// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

const misplacedTemplate = `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  params:
  - {name: level, default: info}
  - {name: team, default: none, overridableBy: [Namespace]}
  pod: {spec: {initContainers: [{name: agent, image: "agent:1", restartPolicy: Always, args: ["${params.level}", "${params.team}"]}]}}
`

func misplacedInjector(t testing.TB) *inject.Injector {
	t.Helper()
	set, err := templates.Compile(templates.File{Path: "a.yaml", Data: []byte(misplacedTemplate)})
	if err != nil {
		t.Fatal(err)
	}
	return inject.New(set)
}

func misplacedIn(t testing.TB, i *inject.Injector, apiVersion, kind, object string) (messages []string) {
	t.Helper()
	node, err := jsontree.Parse([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range i.Misplaced(apiVersion, kind, node) {
		if f.Code != inject.CodeMisplaced || f.Mode != v1alpha1.Warn {
			t.Errorf("%s: %+v", object, f)
		}
		messages = append(messages, f.Message)
	}
	return messages
}

// TestMisplaced checks the findings about keys in the metadata of each kind of workload.
func TestMisplaced(t *testing.T) {
	t.Parallel()
	i := misplacedInjector(t)
	workload := func(metadata, template string) string {
		return fmt.Sprintf(`{"metadata":{"name":"web",%s},"spec":{"template":{"metadata":{%s}}}}`, metadata, template)
	}
	const optedOut = `"labels":{"pillion.dev/inject":"disabled"}`
	const sentence = "Deployment/web has pillion.dev/inject in metadata; Pillion reads spec.template.metadata"
	for name, row := range map[string]struct {
		apiVersion, kind, object string
		want                     []string
	}{
		"label":           {"apps/v1", "Deployment", workload(optedOut, ""), []string{sentence}},
		"annotation":      {"apps/v1", "Deployment", workload(`"annotations":{"pillion.dev/templates":"agent"}`, ""), []string{strings.Replace(sentence, "/inject", "/templates", 1)}},
		"another value":   {"apps/v1", "Deployment", workload(optedOut, `"labels":{"pillion.dev/inject":"enabled"}`), []string{sentence}},
		"same value":      {"apps/v1", "Deployment", workload(optedOut, optedOut), nil},
		"escaped":         {"apps/v1", "Deployment", workload(optedOut, `"labels":{"pillion.dev/inject":"\u0064isabled"}`), nil},
		"null":            {"apps/v1", "Deployment", workload(`"labels":{"pillion.dev/inject":null}`, ""), nil},
		"right":           {"apps/v1", "Deployment", workload(`"labels":{"app":"web"}`, optedOut), nil},
		"others' keys":    {"apps/v1", "Deployment", workload(`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"pillion.dev/inject","notpillion.dev/inject":"x","pillion.dev":"x"}`, ""), nil},
		"Pillion's own":   {"apps/v1", "Deployment", workload(`"annotations":{"agent.pillion.dev/injected":"0123456789ab"}`, ""), nil},
		"template label":  {"apps/v1", "Deployment", workload(`"labels":{"agent.pillion.dev/logs":"x"}`, ""), nil},
		"parameter label": {"apps/v1", "Deployment", workload(`"labels":{"agent.pillion.dev/level":"x"}`, ""), []string{"Deployment/web has agent.pillion.dev/level (a label, and must be an annotation) in metadata; Pillion reads spec.template.metadata"}},
		"misspelled":      {"apps/v1", "Deployment", workload(`"labels":{"pilion.dev/inject":"enabled"}`, ""), []string{"Deployment/web has pilion.dev/inject (misspelled) in metadata; Pillion reads spec.template.metadata"}},
		"two":             {"apps/v1", "Deployment", workload(optedOut+`,"annotations":{"agent.pillion.dev/level":"x"}`, ""), []string{"Deployment/web has pillion.dev/inject and 1 more in metadata; Pillion reads spec.template.metadata"}},
		"two short ones":  {"apps/v1", "Deployment", workload(optedOut+`,"annotations":{"pillion.dev/x":"x"}`, ""), []string{"Deployment/web has pillion.dev/inject and pillion.dev/x in metadata; Pillion reads spec.template.metadata"}},
		"for namespaces":  {"apps/v1", "Deployment", workload(`"annotations":{"agent.pillion.dev/team":"x"}`, ""), []string{"Deployment/web has agent.pillion.dev/team in metadata; Pillion reads the namespace's annotations"}},
		"unknown":         {"apps/v1", "Deployment", workload(`"annotations":{"agnet.pillion.dev/level":"x"}`, ""), []string{"Deployment/web has agnet.pillion.dev/level in metadata; Pillion reads spec.template.metadata"}},
		"no pod template": {"apps/v1", "Deployment", `{"metadata":{"generateName":"web",` + optedOut + `}}`, []string{sentence}},
		"no metadata":     {"apps/v1", "Deployment", `{"metadata":[],"spec":{"template":{"metadata":1}}}`, nil},
		"StatefulSet":     {"apps/v1", "StatefulSet", workload(optedOut, ""), []string{strings.Replace(sentence, "Deployment", "StatefulSet", 1)}},
		"Job":             {"batch/v1", "Job", workload(optedOut, ""), []string{strings.Replace(sentence, "Deployment", "Job", 1)}},
		"PodTemplate":     {"v1", "PodTemplate", `{"metadata":{"name":"web",` + optedOut + `},"template":{}}`, []string{"PodTemplate/web has pillion.dev/inject in metadata; Pillion reads template.metadata"}},
		"Pod":             {"v1", "Pod", `{"metadata":{"name":"web",` + optedOut + `}}`, nil},
		"ConfigMap":       {"v1", "ConfigMap", `{"metadata":{"name":"web",` + optedOut + `}}`, nil},
		"CronJob": {"batch/v1", "CronJob", `{"metadata":{"name":"web",` + optedOut + `},"spec":{"jobTemplate":{"metadata":{"annotations":{"agent.pillion.dev/level":"x"}},"spec":{"template":{}}}}}`, []string{
			"CronJob/web has pillion.dev/inject in metadata; Pillion reads spec.jobTemplate.spec.template.metadata",
			"CronJob/web has agent.pillion.dev/level in spec.jobTemplate.metadata; Pillion reads spec.jobTemplate.spec.template.metadata",
		}},
	} {
		if got := misplacedIn(t, i, row.apiVersion, row.kind, row.object); !slices.Equal(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

// TestMisplacedMoved checks that misplaced keys are reported for any workload. After the keys are
// moved as the sentence says, there is no finding. The sentence must be short.
func TestMisplacedMoved(t *testing.T) {
	t.Parallel()
	i := misplacedInjector(t)
	random := rand.New(rand.NewPCG(1, 2))
	keys := []string{"pillion.dev/inject", "pillion.dev/templates", "agent.pillion.dev/level", "agent.pillion.dev/injected", "app", "other.pillion.dev/" + strings.Repeat("x", 63), "example.com/pillion.dev"}
	for range 200 {
		metadata := func() map[string]any {
			all := map[string]any{}
			for _, place := range []string{"labels", "annotations"} {
				values := map[string]any{}
				for _, key := range keys {
					if random.IntN(4) == 0 {
						values[key] = []string{"enabled", "disabled"}[random.IntN(2)]
					}
				}
				all[place] = values
			}
			return all
		}
		own, pod := metadata(), metadata()
		text := func() string {
			own["name"] = "web"
			b, err := json.Marshal(map[string]any{"metadata": own, "spec": map[string]any{"template": map[string]any{"metadata": pod}}})
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		before := text()
		messages := misplacedIn(t, i, "apps/v1", "Deployment", before)
		moved := 0
		for _, place := range []string{"labels", "annotations"} {
			from, to := own[place].(map[string]any), pod[place].(map[string]any)
			for key, value := range from {
				if annotations := pod["annotations"].(map[string]any); place == "labels" && key == "agent.pillion.dev/level" && to[key] != value && annotations[key] == nil {
					annotations[key] = value
					moved++
				}
				if _, name, ofTemplate := templates.SplitAnnotation(key); strings.HasPrefix(key, "pillion.dev/") || place == "annotations" && ofTemplate && name != "injected" {
					if to[key] != value {
						moved++
					}
					to[key] = value
				}
			}
		}
		if (moved > 0) != (len(messages) > 0) {
			t.Errorf("%d misplaced, reported %q: %s", moved, messages, before)
		}
		if again := misplacedIn(t, i, "apps/v1", "Deployment", text()); len(again) > 0 {
			t.Errorf("moved, and still reported: %q", again)
		}
		for _, m := range messages {
			if n := utf8.RuneCountInString(m); n > 180 { // with one long key that is not shortened
				t.Errorf("%d runes: %s", n, m)
			}
		}
	}
}
