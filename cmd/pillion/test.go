// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/templatetest"
	"github.com/pillion-dev/pillion/templates/problem"
)

// testOptions are the flags of test.
type testOptions struct {
	output string
	run    string
	update bool

	match *regexp.Regexp // of run
}

const testHelp = `Test runs the tests of templates. They are YAML files named *_test.yaml, *_test.yml or
*_test.json. Test reads the named files, and those in the named folders and all folders
below. Keep them in a subfolder of the templates, for example templates/tests.

A test file has cases. Each case has a pod and states what it expects:

  apiVersion: pillion.dev/v1alpha1
  kind: SidecarTemplateTest
  templates: [../log-agent.yaml]
  cases:
  - name: a pod that sets the level
    pod:
      metadata: {annotations: {log-agent.pillion.dev/level: debug}}
      spec: {containers: [{name: web, image: web}]}
    expect:
      decisions: {log-agent: injected}
      values:
        spec.initContainers[log-agent].args: [--level=debug]

https://github.com/pillion-dev/pillion/blob/main/manifests/docs/testing-templates.md has
all fields.

Each case also fails if a promise does not hold: a second injection adds nothing, the pod
keeps everything that it has, the validating webhook accepts the injected pod, and
uninject gives back the original.

The exit code is 0 if all cases pass, 1 if one fails or a file is invalid, and 2 if test
was called with wrong flags or arguments.

-o json and -o yaml write one object:

  suites          for each test file:
    file          its path
    failed        the number of cases that fail
    cases         name, line, failures (what, message, diff), and why templates were skipped
  cases, failed   the numbers of all cases, and of those that fail
  updated         the golden files that --update wrote

-o junit writes XML for CI systems.`

func newTest() *cobra.Command {
	o := &testOptions{}
	cmd := &cobra.Command{
		Use:         "test PATH...",
		Short:       "Run the tests of templates",
		Annotations: cli.FailsIf("a case fails, or a test file is invalid"),
		Long:        testHelp,
		Example: `  pillion test templates/

  # Only the cases whose name matches.
  pillion test templates/ --run 'level|port'

  # Write the expected pods that are in files of their own. Then read the diff.
  pillion test templates/ --update && git diff

  # In a pipeline.
  pillion test templates/ -o junit > junit.xml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the test files, or the folders with them")
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return o.checkFlags() },
		RunE: cli.Action(func(cmd *cobra.Command, paths []string) error {
			return o.runSuites(paths, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "run only the cases whose name matches this `REGEXP`")
	f.BoolVar(&o.update, "update", false, "write the injected pods into the golden files of the cases")
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml", "junit")
	_ = cmd.RegisterFlagCompletionFunc("run", completeCases) // the flag exists
	return cmd
}

func (o *testOptions) checkFlags() error {
	var err error
	if o.match, err = regexp.Compile(o.run); err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	return nil
}

// completeCases completes names of the cases in the named files and folders.
func completeCases(_ *cobra.Command, paths []string, typed string) (names []string, _ cobra.ShellCompDirective) {
	suites, err := readSuites(paths)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, s := range suites {
		for i := range s.Cases {
			if name := regexp.QuoteMeta(s.Cases[i].Name); strings.HasPrefix(name, typed) {
				names = append(names, name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// runSuites reads everything before it runs anything.
func (o *testOptions) runSuites(paths []string, stdout, stderr io.Writer) error {
	suites, err := readSuites(paths)
	if err != nil {
		return err
	}
	report := &templatetest.Report{}
	progress := cli.NewProgress(stderr)
	progress.Start()
	defer progress.End()
	var settled map[string]bool // golden files, see testSuite.runCase
	if o.update {
		settled = map[string]bool{}
	}
	for _, s := range suites {
		of := templatetest.FileReport{File: s.file}
		for i := range s.Cases {
			if !o.match.MatchString(s.Cases[i].Name) {
				continue
			}
			progress.Say("%d cases, %d of %d files", report.Cases+len(of.Cases), len(report.Suites), len(suites))
			outcome, updated, err := s.runCase(&s.Cases[i], settled)
			if err != nil {
				return err
			}
			of.Cases = append(of.Cases, outcome.Report(&s.Cases[i]))
			if updated != "" {
				report.Updated = append(report.Updated, updated)
			}
		}
		if len(of.Cases) > 0 {
			report.Add(of)
		}
	}
	progress.End()
	if report.Cases == 0 {
		return fmt.Errorf("no case has a name that matches %s", o.run)
	}
	if err := o.writeReport(stdout, report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return cli.ErrTold
	}
	return nil
}

func (o *testOptions) writeReport(w io.Writer, report *templatetest.Report) (err error) {
	switch o.output {
	case "json":
		err = cli.WriteJSON(w, report)
	case "yaml":
		err = cli.WriteYAML(w, report)
	case "junit":
		_, err = io.WriteString(w, report.JUnit())
	default:
		_, err = io.WriteString(w, report.Text(func(sentence string) string { return cli.Fold(w, sentence) }))
	}
	return err
}

// readSuites reads all test files and their templates. Its error has all problems.
func readSuites(paths []string) (all []*testSuite, err error) {
	files, err := suiteFiles(paths)
	if err != nil {
		return nil, err
	}
	var problems problem.Problems
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, found := newTestSuite(file, data)
		for _, p := range found {
			if !slices.Contains(problems, p) { // suites share templates
				problems = append(problems, p)
			}
		}
		all = append(all, s)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("the tests are invalid:\n%w", problems)
	}
	return all, nil
}

// testFileName matches the names of test files.
var testFileName = regexp.MustCompile(`^[^.].*_test\.(yaml|yml|json)$`)

// suiteFiles returns the named files, and the test files in the named folders and below.
func suiteFiles(paths []string) (files []string, err error) {
	for _, root := range paths {
		info, err := os.Stat(root)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, root)
			continue
		}
		before := len(files)
		err = fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err == nil && entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case err == nil && !entry.IsDir() && testFileName.MatchString(entry.Name()):
				files = append(files, filepath.Join(root, path))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: there is no *_test.yaml, *_test.yml or *_test.json in this folder or below", root)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}
