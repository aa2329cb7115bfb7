// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
)

// maxTestPods limits how many pods of its tests lint tries a template on.
const maxTestPods = 6

// allowOnTests tries what the values of parameters allow on the pods of the templates' tests. Tests that are invalid are ignored:
// pillion test reports them.
func allowOnTests(e *limits.Evaluator, found *linted, set *templates.Set) {
	pods := testPods(e, found.paths, set)
	for i := range found.Templates {
		t := &found.Templates[i]
		for _, of := range set.Templates {
			if of.ID() == t.Template {
				e.AllowOn(&t.Trial, of, pods[t.Template])
			}
		}
	}
}

// testPods returns the pods of tests by the templates that they get, see testsBeside.
func testPods(e *limits.Evaluator, paths []string, set *templates.Set) map[string][]limits.Subject {
	all := map[string][]limits.Subject{}
	for _, file := range testsBeside(paths) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		s, problems := newTestSuite(file, data)
		if len(problems) > 0 {
			continue
		}
		for i := range s.Cases {
			in, err := s.caseInput(&s.Cases[i])
			if err != nil {
				continue
			}
			result, err := s.injector.Inject(in.Request)
			if err != nil {
				continue
			}
			pod, err := e.Subject(fmt.Sprintf("the pod of the test %q in %s", s.Cases[i].Name, file), in.Request.Object, in.Request.Owner, in.Request.Namespace)
			if err != nil {
				continue
			}
			for j := range result.Decisions {
				d := &result.Decisions[j]
				known := slices.ContainsFunc(set.Templates, func(t *templates.Template) bool { return t.ID() == d.Template })
				if known && d.Code.Succeeded() && len(all[d.Template]) < maxTestPods {
					all[d.Template] = append(all[d.Template], pod)
				}
			}
		}
	}
	return all
}

// testsBeside returns the test files in folders of templates, or beside their files, and in the folders tests there. It does not look
// below, because a template may be in a folder with many others, for example at home.
func testsBeside(paths []string) (files []string) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue // standard input, or a path that is reported already
		}
		if !info.IsDir() {
			path = filepath.Dir(path)
		}
		for _, folder := range []string{path, filepath.Join(path, "tests")} {
			entries, _ := os.ReadDir(folder) // there may be no tests
			for _, entry := range entries {
				if !entry.IsDir() && testFileName.MatchString(entry.Name()) {
					files = append(files, filepath.Join(folder, entry.Name()))
				}
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}
