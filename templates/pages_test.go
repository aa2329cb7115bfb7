// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/request"
)

// The pages about the format, and the parameters that their examples read without declaring them.
const pagesFolder = "../manifests/docs/"

var (
	formatPages = []string{"functions.md", "template-reference.md", "parameters.md", "environment-variables.md"}
	pageParams  = map[string]string{
		"memory": `{"type":"quantity","default":"128Mi"}`, "native": `{"type":"boolean","default":"true"}`, "ports": `{"default":"80,81"}`, "caches": `{"default":"a,b"}`,
		"volume": `{"default":"data"}`, "path": `{"default":""}`, "port": `{"type":"integer","default":"80"}`, "level": `{"optional":true}`, "data": `{"type":"json","default":"{}"}`, "secrets": `{"type":"map","default":"k=v"}`,
	}
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	anyBlock  = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	typeRow   = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*) \\| (.*\\bparams\\.x\\b.*) \\|$")
	ofParams  = regexp.MustCompile(`\bparams\.\??([a-z]\w*)`)
	readsAny  = regexp.MustCompile(`\b(params|pod|ns|serviceAccount|container)\.\??[a-z]`)
)

const pagePod = `{"metadata":{"name":"shop-0","labels":{"app":"shop"}},"spec":{"volumes":[{"name":"data","emptyDir":{}}],"containers":[
	{"name":"app","image":"a","securityContext":{"runAsUser":5},"volumeMounts":[{"name":"data","mountPath":"/data"}],"env":[{"name":"NODE_OPTIONS","value":"x"}]}]}}`

func pageInput(t *testing.T) *cel.Input {
	t.Helper()
	in := withPod(t, pagePod)
	in.Namespace.Known = true
	in.ServiceAccount = &request.ServiceAccount{Name: "shop", Known: true, Annotations: map[string]string{"eks.amazonaws.com/role-arn": "arn"}}
	return in
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(pagesFolder + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFirstTemplatesHaveRequests checks that the first template with a container on each page has requests, because readers copy it: a
// sidecar without requests stops HorizontalPodAutoscalers.
func TestFirstTemplatesHaveRequests(t *testing.T) {
	t.Parallel()
	template := regexp.MustCompile(`(?m)kind: (Cluster)?SidecarTemplate$`)
	found := 0
	for _, pattern := range []string{"../README.md", pagesFolder + "*.md", "../manifests/site/*.md", "library/*.md", "from/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			blocks := anyBlock.FindAllString(string(text), -1)
			i := slices.IndexFunc(blocks, func(b string) bool { return template.MatchString(b) && strings.Contains(b, "image:") })
			if i < 0 {
				continue
			}
			if found++; !strings.Contains(blocks[i], "requests:") {
				t.Errorf("%s: the first template has no requests:\n%s", page, blocks[i])
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d pages have a template", found)
	}
}

// TestBlocksOnPages checks that each YAML block of the pages about the format, completed to a template, is valid and
// renders for a pod.
func TestBlocksOnPages(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range formatPages {
		for _, block := range yamlBlock.FindAllStringSubmatch(readPage(t, page), -1) {
			n++
			found, problems := Parse(page, completed(t, block[1]))
			if len(problems) > 0 {
				t.Errorf("%s:\n%s\n%v", page, block[1], problems)
				continue
			}
			tmpl, in := found[0], pageInput(t)
			values, err := tmpl.Values(nil, nil, &in.Namespace)
			if err == nil {
				_, err = tmpl.Render(in, values)
			}
			if err == nil {
				_, err = tmpl.ForEach(in, values, &in.Pod.At("spec", "containers").Items()[0], false)
			}
			if err != nil {
				t.Errorf("%s:\n%s\n%v", page, block[1], err)
			}
		}
	}
	if n < 9 {
		t.Errorf("only %d blocks are found", n)
	}
}

// completed returns a block as a template with the parameters that it reads.
func completed(t *testing.T, block string) []byte {
	t.Helper()
	indent := len(block) - len(strings.TrimLeft(block, " "))
	block = strings.ReplaceAll("\n"+block, "\n"+strings.Repeat(" ", indent), "\n")
	if strings.HasPrefix(block, "\napiVersion:") {
		return []byte(block)
	}
	var read map[string]any
	if err := yaml.Unmarshal([]byte(block), &read); err != nil {
		t.Fatalf("%s: %v", block, err)
	}
	spec, isSpec := read["spec"].(map[string]any)
	switch {
	case isSpec:
	case read["params"] != nil || read["pod"] != nil || read["forEachContainer"] != nil:
		spec = read
	case read["containers"] != nil || read["initContainers"] != nil:
		spec = map[string]any{"pod": map[string]any{"spec": read}}
	default:
		read["name"], read["image"] = "agent", "registry.example/agent:1"
		spec = map[string]any{"pod": map[string]any{"spec": map[string]any{"containers": []any{read}}}}
	}
	if spec["pod"] == nil && spec["forEachContainer"] == nil {
		spec["pod"] = json.RawMessage(`{"metadata":{"annotations":{"a":"b"}}}`)
	}
	params, _ := spec["params"].([]any)
	for _, name := range ofParams.FindAllStringSubmatch(block, -1) {
		declared := func(p any) bool { return p.(map[string]any)["name"] == name[1] }
		if !slices.ContainsFunc(params, declared) && pageParams[name[1]] != "" {
			params = append(params, pageParam(t, name[1], pageParams[name[1]]))
		}
	}
	if len(params) > 0 {
		spec["params"] = params
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": "log-agent"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func pageParam(t *testing.T, name, text string) map[string]any {
	t.Helper()
	p := map[string]any{}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	p["name"] = name
	return p
}

// functionRow is a row of a table of functions: | `expression` | `result` | or | `expression` | error: message |.
var functionRow = regexp.MustCompile("(?m)^\\| `(.*)` \\| (?:`(.*)`|error: (.*)) \\|$")

// TestExpressionsOnPages checks that each expression in the text of the pages about the format has a value.
func TestExpressionsOnPages(t *testing.T) {
	t.Parallel()
	n := 0
	for _, page := range formatPages {
		text := anyBlock.ReplaceAllString(readPage(t, page), "")
		for _, row := range typeRow.FindAllStringSubmatch(text, -1) {
			for _, value := range codeSpan.FindAllStringSubmatch(row[2], -1) {
				for _, span := range codeSpan.FindAllStringSubmatch(row[3], -1) {
					n++
					param, err := json.Marshal(map[string]string{"type": row[1], "default": value[1]})
					if err != nil {
						t.Fatal(err)
					}
					evaluates(t, page, span[1], map[string]string{"x": string(param)})
				}
			}
		}
		text = functionRow.ReplaceAllString(typeRow.ReplaceAllString(text, ""), "")
		for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
			for _, source := range expressionsIn(strings.ReplaceAll(span[1], "\n", " ")) {
				n++
				evaluates(t, page, source, pageParams)
			}
		}
	}
	if n < 25 {
		t.Errorf("only %d expressions are found", n)
	}
}

// expressionsIn returns the expressions in a code span: the span itself, the values of keys, or the ${...} of a string.
func expressionsIn(span string) (all []string) {
	var members map[string]string
	switch {
	case strings.Contains(span, "NAME"), strings.HasPrefix(span, "spec."):
	case strings.Contains(span, "${"):
		for _, part := range strings.Split(span, "${")[1:] {
			if source, rest, ok := strings.Cut(part, "}"); ok && strings.ContainsAny(source, ".'") && source != "..." && (rest == "" || rest[0] != ':') {
				all = append(all, source)
			}
		}
	case readsAny.MatchString(span) && yaml.Unmarshal([]byte(span), &members) == nil:
		for _, source := range members {
			all = append(all, source)
		}
	case readsAny.MatchString(span):
		all = append(all, span)
	}
	return all
}

// evaluates evaluates an expression with parameters.
func evaluates(t *testing.T, page, source string, params map[string]string) {
	t.Helper()
	source = regexp.MustCompile(`\.map\((\w+), \.\.\.\)`).ReplaceAllString(source, ".map($1, $1)")
	if strings.Contains(source, "[k]") { // in a loop
		source = "params.secrets.map(k, " + source + ")"
	}
	var declared []any
	for name, p := range params {
		declared = append(declared, pageParam(t, name, p))
	}
	text, err := json.Marshal(declared)
	if err != nil {
		t.Fatal(err)
	}
	found, problems := Parse(page, fmt.Appendf(nil, "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: x}\nspec: {params: %s, pod: {metadata: {annotations: {a: b}}}}", text))
	if len(problems) > 0 {
		t.Errorf("%s: %s: %v", page, source, problems)
		return
	}
	c, err := cel.NewCompiler(found[0].Spec.Params)
	if err != nil {
		t.Fatal(err)
	}
	in := pageInput(t)
	values, err := found[0].Values(nil, nil, &in.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := c.CompilePieces(c.ContainerScope(), "${"+source+"}", 0, false)
	if err == nil {
		var whole *cel.Evaluation
		if whole, err = pieces[0].Expression.Part(pieces[0].Expression.AST().Expr()); err == nil {
			_, err = whole.Value(in, values, map[string]ref.Val{"container": types.NullValue})
		}
	}
	if err != nil {
		t.Errorf("%s: `%s`: %v", page, source, err)
	}
}
