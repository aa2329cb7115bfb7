// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestDefaultsInFiles checks that an expression sees values that an API server replaces, in a pod in a file, as the webhook
// sees them.
func TestDefaultsInFiles(t *testing.T) {
	const document = `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t0}, spec: {default: true,
		pod: {metadata: {annotations: {grace: "${string(pod.spec.terminationGracePeriodSeconds)}"}}}}}`
	all, problems := templates.Parse("t.yaml", []byte(document))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := &checker{T: t, injector: inject.New(templates.NewSet(all))}
	for _, period := range []string{"-1", "null", "0", "5"} {
		file := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1"}],"terminationGracePeriodSeconds":` + period + `}}`)
		webhook, err := sent(file)
		if err != nil {
			t.Fatal(err)
		}
		one, codes := c.inject(file, true)
		other, _ := c.inject(webhook, false)
		if !bytes.Equal(one, other) || codes["t0"] != inject.CodeInjected {
			t.Errorf("the period %s: %v\nfile:    %s\nwebhook: %s", period, codes, one, other)
		}
	}
}

// podFor returns a valid pod that sets parameters of sketches, or nil. Customized reports whether a container of the pod
// is marked as the user's version of one of t0's.
func (m *maker) podFor(g *reviews.Sets, sketches map[string]*sketch) (podJSON []byte, customized bool) {
	p := object{}
	if m.in(3) {
		if err := json.Unmarshal([]byte(g.Pod(true)), &p); err != nil {
			panic(err)
		}
		p["apiVersion"], p["kind"] = "v1", "Pod"
	} else {
		p = m.pod(15)
	}
	metadata, ok := p["metadata"].(object)
	if !ok {
		metadata = object{}
		p["metadata"] = metadata
	}
	if annotations, ok := metadata["annotations"].(object); ok {
		for _, name := range sortedKeys(sketches) {
			for key, value := range sketches[name].values {
				annotations[key] = value
			}
		}
		customized = annotations["t0.pillion.dev/customize"] != nil
	}
	if metadata["name"] == nil && metadata["generateName"] == nil { // every pod has one of them
		metadata[pick(m, "name", "generateName")] = "web"
	}
	if spec := p["spec"].(object); spec["resources"] != nil && !utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResources) {
		delete(spec, "resources") // it is dropped, so its presence is invisible
	}
	podJSON = compact(p)
	if _, err := stored(podJSON); err != nil {
		return nil, false // for example because of the annotations
	}
	return podJSON, customized
}

// checker checks injections by one set of templates.
type checker struct {
	*testing.T

	injector   *inject.Injector
	customized bool
	documents  []string
}

func (c *checker) request(podJSON []byte) inject.Request {
	return inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: namespace, ServiceAccounts: accounts{}}, Object: podJSON}
}

// accounts knows the ServiceAccounts that templates read.
type accounts struct{}

func (accounts) ServiceAccount(_, name string) request.ServiceAccount {
	return request.ServiceAccount{Name: name, Known: true, Annotations: map[string]string{"role": "admin"}}
}

// inject checks one injection into a valid pod, which an API server has sent or which is from a file. It returns the pod as
// the API server stores it, and the decisions.
func (c *checker) inject(podJSON []byte, file bool) (kept []byte, codes map[string]inject.Code) {
	c.Helper()
	after, kept, codes := c.run(podJSON, file)
	if kept == nil {
		return nil, codes
	}
	again, err := c.injector.Inject(c.request(kept))
	if err != nil {
		c.Fatal(err)
	}
	if again.Adds() {
		c.Errorf("a second run adds %s", again.Patch())
	}
	about, err := schema.AsStored(after) // which lint goes by
	if err != nil {
		c.Fatal(err)
	}
	for _, final := range [][]byte{kept, about} {
		c.judge(final, codes, func(string) bool { return true })
	}
	return kept, codes
}

// run injects into a valid pod. It returns the result, the same as the API server stores it, and the decisions.
func (c *checker) run(podJSON []byte, file bool) (after, kept []byte, codes map[string]inject.Code) {
	c.Helper()
	req := c.request(podJSON)
	req.File = file
	r, err := c.injector.Inject(req)
	if err != nil {
		c.Fatal(err)
	}
	codes = map[string]inject.Code{}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		codes[d.Template] = d.Code
		if strings.Contains(d.Sentence(), "%!") || d.Sentence() == "" {
			c.Errorf("%s is %s and has no reason: %q", d.Template, d.Code, d.Sentence())
		}
	}
	if _, err := r.AppendVerified(nil, &jsontree.Verifier{}); err != nil {
		c.Errorf("the patch does more than add: %v", err)
	}
	after = patched(c, podJSON, r.Patch())
	if at := reviews.Lost(numbered(podJSON), numbered(after), ""); at != "" {
		c.Errorf("the original value at %s is not in place\npatch: %s", at, r.Patch())
	}
	if kept, err = stored(after); err != nil {
		c.Errorf("%v, and the API server says: %v\npatch: %.3000s", codes, err, r.Patch())
	}
	return after, kept, codes
}

// judge checks that the judge has no finding about those templates that the pod has and that counts selects.
func (c *checker) judge(final []byte, codes map[string]inject.Code, counts func(template string) bool) {
	c.Helper()
	verdict, err := inject.NewJudge(c.injector, nil, true).Judge(c.request(final))
	if err != nil {
		c.Fatal(err)
	}
	for i := range verdict.Judged {
		f := &verdict.Judged[i]
		switch {
		case f.Code == inject.CodeUnknownParameter || f.Template == "" || codes[f.Template].Failed(): // the author has to fix something
		case counts(f.Template):
			c.Errorf("%s, and the judge says: %s", codes[f.Template], f)
		}
	}
}

// newFaults checks that an injection is never the reason for a finding of the judge. Only what another webhook changed before the
// injection may be one, and a template that could not be injected.
func (c *checker) newFaults(before, final []byte, codes map[string]inject.Code) {
	c.Helper()
	judge := func(podJSON []byte) []inject.Finding {
		verdict, err := inject.NewJudge(c.injector, nil, true).Judge(c.request(podJSON))
		if err != nil {
			c.Fatal(err)
		}
		return verdict.Judged
	}
	old := judge(before)
	for _, f := range judge(final) {
		altered := func(was inject.Finding) bool { return was.Code == inject.CodeAltered && was.Template == f.Template }
		switch {
		case f.Code == inject.CodeUnknownParameter || f.Template == "" || codes[f.Template].Failed() || codes[f.Template] == inject.CodeFellBack:
		case f.Code == inject.CodeAltered && slices.ContainsFunc(old, altered):
		default:
			c.Errorf("only after the injection, the judge says: %s", &f)
		}
	}
}

// readsPod finds templates whose values change if another webhook changes the pod.
var readsPod = regexp.MustCompile(`\b(pod|container)\.(spec|metadata|env|image|name|volumeMounts|securityContext)\b`)

// addsAgain lets another webhook change a pod that the API server has stored, and checks the second call. The judge may find
// what the other webhook did, but nothing about a template that only the second call injects. Adds reports whether the second
// call was made and adds something.
func (c *checker) addsAgain(g *reviews.Sets, kept []byte) (adds bool) {
	c.Helper()
	if kept == nil {
		return false
	}
	changed, damaged := g.Meddle(kept)
	if _, err := stored(changed); err != nil {
		return false // the other webhook's mistake
	}
	changed, err := sent(changed)
	if err != nil {
		c.Fatal(err)
	}
	_, final, codes := c.run(changed, false)
	if final == nil {
		c.Logf("the other webhook made: %.6000s", changed)
		return true
	}
	third, err := c.injector.Inject(c.request(final))
	if err != nil {
		c.Fatal(err)
	}
	if third.Adds() {
		c.Errorf("after another webhook, a third run adds %s", third.Patch())
	}
	c.newFaults(changed, final, codes)
	unharmed := !damaged && !slices.ContainsFunc(c.documents, readsPod.MatchString)
	c.judge(final, codes, func(template string) bool {
		return unharmed || codes[template] == inject.CodeInjected && !bytes.Contains(changed, []byte(template+"."+templates.Domain+"/"))
	})
	if c.Failed() {
		c.Logf("the other webhook made: %.6000s", changed)
	}
	return slices.Contains(slices.Collect(maps.Values(codes)), inject.CodeInjected)
}

func numbered(text []byte) any {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return v
}
