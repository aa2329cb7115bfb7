// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/templates"
)

func newLint() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "lint PATH...",
		Short: "Check templates",
		Long: `Lint checks template files, and all template files in folders, by loading them
just as serve and inject do. It writes one line for each problem:

  file:line: path: message

and exits with 0 when there is none, 1 when there are some, and 2 when it was
called wrongly.`,
		Example: `  pillion lint templates/
  pillion lint log-agent.yaml proxy.yaml -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the files or folders to check")
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return oneOf("output", output, "text", "json") },
		RunE: does(func(cmd *cobra.Command, paths []string) error {
			set, err := loadTemplates(paths)
			return lintReport(cmd.OutOrStdout(), output, set, err)
		}),
	}
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func lintReport(w io.Writer, output string, set *templates.Set, err error) error {
	problems := templates.Problems{}
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	if output == "json" {
		if err := writeJSON(w, problems); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		if output == "text" {
			fmt.Fprintln(w, problems.Error())
		}
		return errTold
	}
	if output == "text" {
		fmt.Fprintln(w, templateCount(set), "fine")
	}
	return nil
}

func templateCount(set *templates.Set) string {
	if len(set.Templates) == 1 {
		return "1 template is"
	}
	return fmt.Sprintf("%d templates are", len(set.Templates))
}

// loadTemplates loads files and folders. What is one and what is the other is
// looked at every time: a path may change from one to the other.
func loadTemplates(paths []string) (*templates.Set, error) {
	sources := make([]templates.Source, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			sources[i] = templates.Source{FS: os.DirFS(path), Name: ".", Path: path}
		} else {
			sources[i] = templates.Source{FS: os.DirFS(filepath.Dir(path)), Name: filepath.Base(path), Path: path}
		}
	}
	set, err := templates.Load(sources...)
	if err == nil && len(set.Templates) == 0 {
		return set, errNoTemplates
	}
	return set, err
}

// errNoTemplates comes with an empty set. A cluster may have none for a while;
// who names files on a command line meant to have some.
var errNoTemplates = errors.New("there is no *.yaml, *.yml or *.json with a template in the files and folders given (folders below them are not searched)")
