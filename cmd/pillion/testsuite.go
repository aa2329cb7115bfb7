// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/templatetest"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// testSuite is a test file with its templates.
type testSuite struct {
	*templatetest.Suite

	file     string
	injector *inject.Injector
}

func newTestSuite(file string, data []byte) (*testSuite, problem.Problems) {
	parsed, problems := templatetest.Parse(file, data)
	if len(problems) > 0 {
		return nil, problems
	}
	s := &testSuite{Suite: parsed, file: file}
	var paths []string
	for i, path := range s.Templates {
		paths = append(paths, s.resolvePath(path))
		if _, err := os.Stat(paths[i]); err != nil {
			problems = append(problems, s.Problem(cli.PlainWords(err), "templates", i))
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	set, err := cli.LoadTemplates(nil, paths)
	if errors.As(err, &problems) {
		return nil, problems
	}
	if err != nil {
		return nil, problem.Problems{s.Problem(err.Error(), "templates")}
	}
	s.injector = inject.New(set)
	return s, s.Check(set)
}

// resolvePath returns a path in the suite, which is relative to its folder.
func (s *testSuite) resolvePath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	if path = filepath.Join(filepath.Dir(s.file), path); path == "-" {
		return "./-" // a file, and not standard input
	}
	return path
}

// runCase runs a case. If settled is not nil, it writes the golden file of the case and returns its path,
// unless the file exists and the case fails for another reason, too. If settled has the file, an
// earlier case agrees with it, so it stays.
func (s *testSuite) runCase(c *templatetest.Case, settled map[string]bool) (outcome *templatetest.Outcome, updated string, err error) {
	in, err := s.caseInput(c)
	if err != nil {
		return nil, "", problem.Problems{s.CaseProblem(c, cli.PlainWords(err))}
	}
	var file *goldenFile
	if c.Expect.Golden != "" {
		if file, err = openGolden(filepath.Dir(s.file), c.Expect.Golden); err == nil {
			defer file.root.Close()
			in.Golden, err = file.readPod()
		}
		if err != nil {
			return nil, "", problem.Problems{s.CaseProblem(c, cli.PlainWords(err))}
		}
	}
	outcome, err = c.Run(s.injector, in)
	if err != nil {
		return nil, "", problem.Problems{s.CaseProblem(c, err.Error())}
	}
	if settled == nil || c.Expect.Golden == "" {
		return outcome, "", nil
	}
	golden := s.resolvePath(c.Expect.Golden)
	switch differs := outcome.Pod != string(in.Golden); {
	case differs && settled[golden]:
		outcome.Failures = append(outcome.Failures, templatetest.Failure{
			What: "expect.golden", Message: "another case agrees with " + c.Expect.Golden + ", so --update does not write it; name another file",
		})
	case differs && (in.Golden == nil || outcome.OnlyGolden()):
		in.Golden, updated = []byte(outcome.Pod), golden
		if err = file.writePod(outcome.Pod); err == nil {
			outcome, err = c.Run(s.injector, in)
		}
		if err != nil {
			return nil, "", err
		}
	}
	settled[golden] = settled[golden] || len(outcome.Failures) == 0
	return outcome, updated, nil
}

// caseInput returns a case as the input of inject: a manifest, and what is known about the namespace.
func (s *testSuite) caseInput(c *templatetest.Case) (in templatetest.Input, err error) {
	o := &injectOptions{namespace: "default", output: "yaml", declared: manifest.Declared{Namespaces: map[string]request.Namespace{}}}
	node, err := s.caseObject(o, c)
	if err != nil {
		return in, err
	}
	found, err := manifest.In(nil, node, nil)
	if err != nil {
		return in, err
	}
	if len(found) != 1 {
		return in, errors.New("the pod is not an object")
	}
	manifest := found[0]
	pod := node.Clone()
	for place, values := range map[string]map[string]string{"annotations": c.Annotations, "labels": c.Labels} {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			setText(&pod, append(slices.Clone(manifest.PodAt), "metadata", place, key), values[key])
		}
	}
	manifest.Node, manifest.Pod = &pod, pod.At(manifest.PodAt...)
	if err := errors.Join(o.declareFor(c, manifest), o.declareAccountFor(c, manifest.Pod)); err != nil {
		return in, err
	}
	req, wrong, err := newInjection(o, s.injector, io.Discard).requestFor(manifest)
	if err == nil && len(wrong.Rejected) > 0 {
		err = errors.New(wrong.Rejected[0])
	}
	in = templatetest.Input{Request: req, Findings: s.injector.Misplaced(manifest.APIVersion, manifest.Kind, manifest.Node)}
	if len(inject.InjectedBy(req.Object)) == 0 { // otherwise uninject would also remove what was injected before
		in.Undo = func() (was, is []byte, err error) { return s.undoManifest(o, pod.AppendTo(nil)) }
	}
	return in, err
}

// declareFor declares the namespace of a case.
func (o *injectOptions) declareFor(c *templatetest.Case, manifest manifest.Object) error {
	name := manifest.Node.At("metadata", "namespace").Text()
	ns := c.Namespace
	switch {
	case ns == nil || ns.Name == "" && ns.Labels == nil && ns.Annotations == nil:
		return nil // only what the file declares is known
	case name == "" && ns.Name != "":
		name = ns.Name
		o.namespace = name
	case name == "":
		name = o.namespace
	case ns.Name != "" && ns.Name != name:
		return fmt.Errorf("the namespace of the case is %s, and that of the %s is %s", ns.Name, manifest.Kind, name)
	}
	o.declared.Namespaces[name] = request.Namespace{Name: name, Labels: ns.Labels, Annotations: ns.Annotations, Known: ns.Labels != nil}
	return nil
}

// declareAccountFor declares the ServiceAccount of a case.
func (o *injectOptions) declareAccountFor(c *templatetest.Case, pod *jsontree.Node) error {
	account := c.ServiceAccount
	if account == nil {
		return nil // only what the file declares is known
	}
	name := request.ServiceAccountName(pod)
	if account.Name != "" && account.Name != name {
		return fmt.Errorf("the ServiceAccount of the case is %s, and that of the pod is %s", account.Name, name)
	}
	o.account = &request.ServiceAccount{Labels: account.Labels, Annotations: account.Annotations}
	return nil
}

// caseObject returns the Pod or workload of a case. It declares the namespaces and ServiceAccounts in its
// file.
func (s *testSuite) caseObject(o *injectOptions, c *templatetest.Case) (*jsontree.Node, error) {
	if c.File == "" {
		pod, err := jsontree.Parse(c.Pod)
		if err != nil {
			return nil, err
		}
		return withKind(pod, "v1", "Pod"), nil
	}
	o.files = []string{s.resolvePath(c.File)}
	files, err := o.readFiles(nil)
	if err != nil {
		return nil, err
	}
	var all []*jsontree.Node
	for _, file := range files {
		for _, d := range yamledit.Split(file.data) {
			found, err := manifest.InDocument(d)
			if err != nil {
				return nil, locateError(d, file.name, err)
			}
			for _, of := range found {
				all = append(all, withKind(of.Node, of.APIVersion, of.Kind))
			}
		}
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%s has %d objects with a pod; a case is about one", c.File, len(all))
	}
	return all[0], nil
}

// withKind returns an object that begins with its kind. An item of a typed list has none.
func withKind(n *jsontree.Node, apiVersion, kind string) *jsontree.Node {
	whole := jsontree.Members(jsontree.Field("apiVersion", jsontree.Text(apiVersion)), jsontree.Field("kind", jsontree.Text(kind)))
	members := n.Members()
	for i := range members {
		if name := members[i].Name(); name != "apiVersion" && name != "kind" {
			whole.Set(name, members[i])
		}
	}
	return &whole
}

// setText sets a string at a path of members, and makes objects on the way.
func setText(n *jsontree.Node, path []string, text string) {
	members := n.Members()
	i := slices.IndexFunc(members, func(m jsontree.Node) bool { return m.Name() == path[0] })
	if i < 0 {
		n.Set(path[0], jsontree.Members())
		members = n.Members()
		i = len(members) - 1
	}
	switch {
	case len(path) == 1:
		members[i] = jsontree.Field(path[0], jsontree.Text(text))
		return
	case members[i].Kind() != jsontree.Object: // null
		members[i] = jsontree.Field(path[0], jsontree.Members())
	}
	setText(&members[i], path[1:], text)
}

// undoManifest runs inject and uninject on a manifest.
func (s *testSuite) undoManifest(o *injectOptions, manifest []byte) (was, is []byte, err error) {
	there := newInjection(o, s.injector, io.Discard)
	if err := there.changeFile(s.file, manifest); err != nil {
		return nil, nil, err
	}
	uninject := *o
	uninject.uninject = true
	back := newInjection(&uninject, s.injector, io.Discard)
	err = back.changeFile(s.file, there.stream.Bytes())
	return manifest, back.stream.Bytes(), err
}
