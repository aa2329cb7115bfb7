// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/importer"
)

// importOptions are the flags of import.
type importOptions struct {
	files     []string
	outputDir string
	output    string
}

func newImport() *cobra.Command {
	o := &importOptions{}
	cmd := &cobra.Command{
		Use:         "import",
		Short:       "Write templates from the configuration of other injectors",
		Annotations: cli.FailsIf("a field or an object is left out"),
		Long: `Import reads what other injectors are configured by, and writes templates:

  * SidecarSets of OpenKruise
  * injection templates of Istio, in its values, in an IstioOperator or in the
    ConfigMap istio-sidecar-injector, and the annotation proxy.istio.io/overrides
  * sidecar configurations of Tumblr's k8s-sidecar-injector, in files or ConfigMaps
  * ConfigMaps of Expedia Group's kubernetes-sidecar-injector, of
    kube-sidecar-injector and of injectors with the same format
  * ClusterPolicies, Policies and MutatingPolicies of Kyverno
  * MutatingAdmissionPolicies of Kubernetes, together with their bindings

It finds out what a file contains. It needs no cluster. To read objects of a
cluster, write them into a file with kubectl get -o yaml.

A template adds what the other injector adds. What it cannot express is a comment
in the template, above the object that lacks it: the field, its line, its value,
and what to do instead. If which pods get something cannot be expressed, the
template has no default: true, so pods get it only if they name it.

The templates have no problem that pillion lint finds. Read their comments, and
try them with pillion inject on your own workloads.

Import prints a report to standard error: one line for each object, and one for
each field that is left out, or has a note:

  file:line: field: left out: why, and what to do instead

-o json writes one object to standard output instead of the templates and the
report, with objects:

  file, line, kind, name   of the object
  outcome                  Whole, Part, None, or Skipped if it configures nothing
  templates                name and yaml of each template
  partOf                   for a binding: its policy, which has the templates
  leftOut, notes           line, field, was (its value) and message

The exit code is 0 if everything is imported as a whole, and 1 if something is left
out. The templates are written in both cases.`,
		Example: `  # What would a SidecarSet be as a template?
  pillion import -f sidecarset.yaml

  # Import a folder, write one file for each template, and check them.
  pillion import -f injector/ --output-dir templates/
  pillion lint templates/

  # From a cluster.
  kubectl get sidecarsets -o yaml | pillion import -f - > templates.yaml

  # For a script: the fields that are left out.
  pillion import -f policies/ -o json | jq -r '.objects[].leftOut[].field'`,
		Args: cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error {
			if len(o.files) == 0 {
				return errors.New("name the configuration: --filename FILE, or --filename - for standard input")
			}
			return nil
		},
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			return o.importFiles(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "import this `FILE`, the files of a folder, or - for standard input; may be repeated")
	f.StringVar(&o.outputDir, "output-dir", "", "write each template into a file of this `FOLDER`, which is made if it does not exist, instead of standard output")
	_ = cmd.MarkFlagDirname("output-dir") // the flag exists
	cli.OutputFlag(cmd, &o.output, "yaml", "json")
	return cmd
}

// importFiles imports the files, and prints the templates and the report.
func (o *importOptions) importFiles(stdin io.Reader, stdout, stderr io.Writer) error {
	sources, err := readSources(stdin, o.files)
	if err != nil {
		return err
	}
	objects, err := importer.Import(sources)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(objects, func(r importer.Imported) bool { return r.Outcome != importer.Skipped }) {
		return errNothingToImport
	}
	if o.outputDir != "" {
		if err := writeTemplates(o.outputDir, objects); err != nil {
			return err
		}
	}
	if o.output == "json" {
		err = cli.WriteJSON(cli.ForDocument(stdout), map[string]any{"objects": objects})
	} else {
		for line := range strings.Lines(importer.Text(objects)) {
			fmt.Fprintln(stderr, cli.Fold(stderr, strings.TrimSuffix(line, "\n")))
		}
		if o.outputDir == "" {
			_, err = io.WriteString(cli.ForDocument(stdout), importer.YAML(objects))
		}
	}
	if err == nil && slices.ContainsFunc(objects, func(r importer.Imported) bool { return len(r.LeftOut) > 0 }) {
		err = cli.ErrTold
	}
	return err
}

var errNothingToImport = errors.New("the files contain nothing that configures an injector; pillion import --help lists what it can read")

// readSources reads the files that a user named.
func readSources(stdin io.Reader, files []string) ([]importer.Source, error) {
	names, err := listInputs(files)
	if err != nil {
		return nil, err
	}
	var sources []importer.Source
	for _, name := range names {
		data, err := readInput(name, stdin)
		if err != nil {
			return nil, err
		}
		if name == "-" {
			name = "standard input"
		}
		sources = append(sources, importer.Source{Name: name, Data: data})
	}
	return sources, nil
}

// writeTemplates writes each template into a file of a folder. It writes nothing if one of the files exists with another content.
func writeTemplates(folder string, objects []importer.Imported) error {
	contents := map[string]string{}
	for _, r := range objects {
		for _, t := range r.Templates {
			path := filepath.Join(folder, t.Name+".yaml")
			for i := 2; contents[path] != ""; i++ { // a template of another namespace has this file
				path = filepath.Join(folder, fmt.Sprintf("%s-%d.yaml", t.Name, i))
			}
			old, err := os.ReadFile(path)
			switch {
			case err == nil && string(old) != t.YAML:
				return fmt.Errorf("%s exists already, with another content; remove it, or write the templates into another folder", path)
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return err
			}
			contents[path] = t.YAML
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for path, content := range contents {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
