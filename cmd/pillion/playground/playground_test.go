// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
)

const (
	agent = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {containers: [{name: agent, image: "agent:1"}]}}
`
	web     = "# 𝄞\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: app, image: app}\n"
	optedIn = "pillion.dev/inject: enabled"
)

func evaluate(t *testing.T, in playground.Input) *playground.Output {
	t.Helper()
	e, err := playground.New()
	if err != nil {
		t.Fatal(err)
	}
	return e.Evaluate(&in)
}

// TestAdded checks that the spans are exactly what is not in the manifest, in UTF-16 code units.
func TestAdded(t *testing.T) {
	out := evaluate(t, playground.Input{Templates: agent, Manifest: web + "---\n" + web, NamespaceLabels: optedIn})
	units, at, rest := utf16.Encode([]rune(out.Result)), 0, ""
	for _, s := range out.Added {
		rest += string(utf16.Decode(units[at:s.From]))
		at = s.To
	}
	rest += string(utf16.Decode(units[at:]))
	if rest != web+"---\n"+web || len(out.Objects) != 2 || out.Objects[1].Line != 10 {
		t.Errorf("without the additions, the result is\n%s\nobjects: %+v", rest, out.Objects)
	}
}

// TestMistakes checks the places of mistakes.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		in    playground.Input
		field string
		line  int
		part  string
	}{
		"manifest":    {playground.Input{Templates: agent, Manifest: web + "---\na: [\n"}, "", 9, "did not find expected node content"},
		"labels":      {playground.Input{Templates: agent, NamespaceLabels: "a: b\nc"}, "namespaceLabels", 2, ""},
		"no object":   {playground.Input{Templates: agent, AccountAnnotations: "a"}, "accountAnnotations", 1, "key: value"},
		"final":       {playground.Input{Templates: agent, Final: "kind: Pod\napiVersion: v1\nspec: [\n"}, "final", 3, ""},
		"other kinds": {playground.Input{Templates: agent, Manifest: "a: b\n---\nkind: Rollout\nspec: {template: {spec: {containers: [{name: a}]}}}\n"}, "", 3, "does not know this kind"},
	} {
		out := evaluate(t, c.in)
		if len(out.Mistakes) != 1 || out.Mistakes[0].Field != c.field || out.Mistakes[0].Line != c.line || !strings.Contains(out.Mistakes[0].Message, c.part) {
			t.Errorf("%s: %+v", name, out.Mistakes)
		}
	}
	if out := evaluate(t, playground.Input{Templates: agent + "  x: y\n"}); len(out.Problems) != 1 || out.Problems[0].Line != 7 {
		t.Errorf("%+v", out.Problems)
	}
}

// TestJSON checks that no list is null, because the page iterates over all of them, and that invalid input gives an
// error.
func TestJSON(t *testing.T) {
	e, err := playground.New()
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(playground.Input{Templates: agent, Manifest: web, NamespaceLabels: optedIn, Policy: "mutating"})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{string(in), "{}"} {
		if out := string(e.JSON([]byte(in))); strings.Contains(out, "null") {
			t.Errorf("%s gives %s", in, out)
		}
	}
	if out := string(e.JSON([]byte("x"))); !strings.HasPrefix(out, `{"error":`) {
		t.Error(out)
	}
}

// TestDeclared checks that the Namespace and the ServiceAccount in a manifest count for their pods, and the fields of
// the page for others.
func TestDeclared(t *testing.T) {
	const reads = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {containers: [{name: agent, image: "agent:1", args: ["${serviceAccount.annotations[?'tier'].orValue('none')}"]}]}}
`
	in := func(namespace string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web" + namespace + "}\nspec: {serviceAccountName: web, containers: [{name: app, image: app}]}\n"
	}
	shop := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {" + optedIn + "}}\n"
	out := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {pillion.dev/inject: disabled}}\n"
	account := "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web, annotations: {tier: gold}}\n"
	for name, c := range map[string]struct {
		in   playground.Input
		want string // the code and the argument
	}{
		"fields":             {playground.Input{Manifest: in(""), NamespaceLabels: optedIn, AccountAnnotations: "tier: bronze"}, "injected bronze"},
		"namespace":          {playground.Input{Manifest: shop + in(", namespace: shop")}, "injected none"},
		"another":            {playground.Input{Manifest: shop + in(", namespace: other")}, "not_opted_in "},
		"fields of another":  {playground.Input{Manifest: shop + in(", namespace: other"), NamespaceLabels: optedIn}, "injected none"},
		"after the pod":      {playground.Input{Manifest: in("") + out, NamespaceLabels: optedIn}, "not_opted_in "},
		"account":            {playground.Input{Manifest: account + in(""), NamespaceLabels: optedIn, AccountAnnotations: "tier: bronze"}, "injected gold"},
		"account of another": {playground.Input{Manifest: account + in(", namespace: shop"), NamespaceLabels: optedIn, AccountAnnotations: "tier: bronze"}, "injected bronze"},
	} {
		c.in.Templates = reads
		got := evaluate(t, c.in)
		if len(got.Objects) != 1 || len(got.Mistakes) > 0 || len(got.Verdicts) != 1 || got.Verdicts[0].Verdict != "allowed" {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		argument := ""
		if found := regexp.MustCompile(`"args": \[\s*"(\w+)"`).FindStringSubmatch(got.Objects[0].Patch); found != nil {
			argument = found[1]
		}
		if is := string(got.Objects[0].Decisions[0].Code) + " " + argument; is != c.want {
			t.Errorf("%s: %s, want %s\n%s", name, is, c.want, got.Objects[0].Patch)
		}
	}
}

// TestDeclaredFinal checks that the Namespace in the final manifest counts, if the user edits it.
func TestDeclaredFinal(t *testing.T) {
	shop := "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {" + optedIn + "}}\n---\n"
	in := playground.Input{Templates: strings.Replace(agent, "  pod:", "  validate: {mode: Deny}\n  pod:", 1), Manifest: shop + web, Final: shop + web}
	if out := evaluate(t, in); len(out.Verdicts) != 1 || out.Verdicts[0].Verdict != "denied" {
		t.Errorf("%+v", out.Verdicts)
	}
	in.Final = web
	if out := evaluate(t, in); len(out.Verdicts) != 1 || out.Verdicts[0].Verdict != "allowed" {
		t.Errorf("%+v", out.Verdicts)
	}
}

// TestLint checks that the hints are what the webhook warns about, at the line of the template.
func TestLint(t *testing.T) {
	const host = `---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: host}
spec:
  params: [{name: level, type: string}]
  pod: {spec: {containers: [{name: host, image: "host:1", args: ["${params.level}"], resources: {requests: {cpu: 1m}}, securityContext: {privileged: true}}]}}
`
	out := evaluate(t, playground.Input{Templates: agent + host, Lint: true})
	for _, want := range []struct {
		line       int
		path, part string
	}{
		{1, "agent", "Pod Security: baseline"},
		{8, "host", "Pod Security: privileged"},
		{8, "host", "a BestEffort pod becomes Burstable"},
		{8, "host", "must set level, because there is no default"},
	} {
		if !slices.ContainsFunc(out.Hints, func(p playground.Problem) bool {
			return want.line <= p.Line && p.Line <= want.line+2 && p.Path == want.path && strings.Contains(p.Message, want.part)
		}) {
			t.Errorf("no hint %+v in %+v", want, out.Hints)
		}
	}
	if len(out.Problems)+len(out.Objects) > 0 {
		t.Errorf("%+v", out)
	}
	deny := strings.Replace(agent, "image: \"agent:1\"", `image: "${pod.metadata.annotations['x']}"`, 1)
	deny = strings.Replace(deny, "  pod:", "  validate: {mode: Deny}\n  pod:", 1)
	if out := evaluate(t, playground.Input{Templates: deny, Lint: true}); len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Message, "such pods are denied") {
		t.Errorf("%+v", out)
	}
}

// TestVerdictOfStoredPod checks that the page judges the final pod as an API server stores it: with its defaults, which
// the condition of a template may read.
func TestVerdictOfStoredPod(t *testing.T) {
	reads := strings.Replace(agent, "  pod:", "  validate: {mode: Deny}\n  match: {condition: \"pod.spec.?dnsPolicy.orValue('') == 'ClusterFirst'\"}\n  pod:", 1)
	for final, want := range map[string]string{web: "denied", web + "  dnsPolicy: Default\n": "allowed"} {
		in := playground.Input{Templates: reads, Manifest: web, Final: final, NamespaceLabels: optedIn}
		if out := evaluate(t, in); len(out.Verdicts) != 1 || out.Verdicts[0].Verdict != want {
			t.Errorf("%s: %+v %+v", final, out.Verdicts, out.Problems)
		}
	}
}
