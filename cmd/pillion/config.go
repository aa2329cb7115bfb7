// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

const (
	environmentPrefix = "PILLION_"
	// sourceAnnotation of a flag says where its value comes from, unless that is the command line.
	sourceAnnotation = "pillion.dev/source"
)

// configure sets every flag that was not given from its variable, or else from the
// file that --config names: --admin-listen from PILLION_ADMIN_LISTEN, or from
// admin-listen. A list in a variable is separated by commas.
func configure(flags *pflag.FlagSet) error {
	settings := viper.New()
	settings.SetEnvPrefix(strings.TrimSuffix(environmentPrefix, "_"))
	settings.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	settings.AutomaticEnv()
	var file configFile
	if f := flags.Lookup("config"); f != nil {
		if !f.Changed && settings.IsSet(f.Name) {
			_ = f.Value.Set(settings.GetString(f.Name)) // a text takes everything
		}
		if path := f.Value.String(); path != "" {
			data, err := os.ReadFile(path)
			if err != nil {
				return &commandError{fmt.Errorf("the configuration: %w", err)}
			}
			if file, err = parseConfig(path, data, flags); err != nil {
				return &commandError{err}
			}
		}
	}
	return file.fill(flags, settings, func(name string) bool { return os.Getenv(variable(name)) != "" })
}

// variable is the environment variable of a flag.
//
// No flag may be called "port", "service-host" or "service-port": a Service
// named pillion makes Kubernetes set such variables in its namespace's pods.
func variable(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// configFile is what a configuration file says.
type configFile struct {
	path   string
	values map[string]any // a text, or a list of texts
	lines  map[string]int
}

// fill sets the flags that were not given from the settings, over the file.
func (c configFile) fill(flags *pflag.FlagSet, settings *viper.Viper, fromEnvironment func(flag string) bool) error {
	if err := settings.MergeConfigMap(c.values); err != nil {
		return err
	}
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || !settings.IsSet(f.Name) {
			return
		}
		source, at := "file "+c.path, fmt.Sprintf("%s:%d: %s", c.path, c.lines[f.Name], f.Name)
		if fromEnvironment(f.Name) {
			source = "environment " + variable(f.Name)
			at = variable(f.Name) + " in the environment"
		}
		if err := assign(f, settings.Get(f.Name)); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: must be %s, not %q", at, kindOf(f), settings.GetString(f.Name)))
			return
		}
		f.Changed = true
		f.Annotations = map[string][]string{sourceAnnotation: {source}}
	})
	return errors.Join(wrong...)
}

// assign sets a flag to a text, or a list to texts.
func assign(f *pflag.Flag, value any) error {
	if items, ok := value.([]string); ok {
		return f.Value.(pflag.SliceValue).Replace(items)
	}
	return f.Value.Set(fmt.Sprint(value))
}

// parseConfig reads a YAML file whose keys are names of flags. Its errors are one
// line for each key that is wrong.
func parseConfig(path string, data []byte, flags *pflag.FlagSet) (configFile, error) {
	c := configFile{path, map[string]any{}, map[string]int{}}
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return c, nil // nothing but comments
	case err != nil:
		line, message := tree.WhereYAML(data, err)
		return c, fmt.Errorf("%s:%d: %s", path, line, message)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: there must be only one YAML document in it", path)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return c, fmt.Errorf("%s:%d: must be names of flags and their values, as in \"log-level: info\"", path, root.Line)
	}
	var wrong []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if problem := c.take(flags, key, value); problem != "" {
			wrong = append(wrong, fmt.Errorf("%s:%d: %s: %s", path, key.Line, key.Value, problem))
		}
	}
	return c, errors.Join(wrong...)
}

// take takes note of a key's value, or says what is wrong with it.
func (c configFile) take(flags *pflag.FlagSet, key, value *yaml.Node) string {
	name := key.Value
	f := flags.Lookup(name)
	if f == nil || slices.Contains(notInFile(), name) {
		if closest := templates.Closest(name, flagNames(flags)); closest != "" {
			return "unknown key; did you mean " + closest + "?"
		}
		return "unknown key"
	}
	if line, twice := c.lines[name]; twice {
		return fmt.Sprintf("stands in line %d too", line)
	}
	c.lines[name] = key.Line
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if _, list := f.Value.(pflag.SliceValue); list && value.Kind == yaml.SequenceNode {
		items := []string{} // an empty list is one too
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" {
				return "must be " + kindOf(f)
			}
			items = append(items, item.Value)
		}
		c.values[name] = items
		return ""
	} else if !list && value.Kind == yaml.ScalarNode && scalarFits(f.Value.Type(), value) {
		c.values[name] = value.Value
		return ""
	}
	if value.Kind == yaml.ScalarNode && value.Value != "" {
		return "must be " + kindOf(f) + ", not " + value.Value
	}
	return "must be " + kindOf(f)
}

// scalarFits says whether a YAML value has the type of a flag.
func scalarFits(flagType string, n *yaml.Node) bool {
	tag := n.ShortTag()
	switch flagType {
	case "string":
		return tag == "!!str"
	case "bool":
		return tag == "!!bool"
	case "duration":
		_, err := time.ParseDuration(n.Value)
		return err == nil
	case "quantity":
		_, err := resource.ParseQuantity(n.Value)
		return err == nil
	case "float64":
		return tag == "!!float" || tag == "!!int"
	}
	return tag == "!!int"
}

// kindOf says what a flag takes.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "string":
		return `a text (in "quotes" where YAML takes it for something else)`
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 5s or 1m30s"
	case "quantity":
		return "a quantity such as 64Mi"
	case "stringSlice", "stringArray":
		return "a list of texts, as [a, b]"
	case "float64":
		return "a number"
	}
	return "a whole number"
}

// notInFile are the flags that say nothing about serving.
func notInFile() []string { return []string{"config", "help", "print-config"} }

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notInFile(), f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// printConfig writes the values of all flags as a file for --config, and where
// they come from. Secrets are in files, of which this has the names.
func printConfig(w io.Writer, flags *pflag.FlagSet) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInFile(), f.Name) {
			return
		}
		value := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, item := range list.GetSlice() {
				value.Content = append(value.Content, yamledit.Text(item))
			}
		} else if f.Value.Type() == "string" {
			value = yamledit.Text(f.Value.String())
		}
		value.LineComment = valueSource(f)
		root.Content = append(root.Content, yamledit.Text(f.Name), value)
	})
	encoder := yaml.NewEncoder(w)
	return errors.Join(encoder.Encode(root), encoder.Close())
}

func valueSource(f *pflag.Flag) string {
	switch from := f.Annotations[sourceAnnotation]; {
	case len(from) > 0:
		return from[0]
	case f.Changed:
		return "flag"
	}
	return "default"
}

// serviceVariable is one that Kubernetes sets for a Service named pillion, or pillion-something.
var serviceVariable = regexp.MustCompile(`^PILLION_(.+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// strangeVariables are sentences about variables (as NAME=VALUE) that look as if
// they were meant for Pillion, and belong to no flag of any command.
func strangeVariables(root *cobra.Command, environ []string) (all []string) {
	var flags []string
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	}
	for _, pair := range environ { // PILLION_CACHE is make demo's
		name, _, _ := strings.Cut(pair, "=")
		bare, ours := strings.CutPrefix(name, environmentPrefix)
		flag := strings.ReplaceAll(strings.ToLower(bare), "_", "-")
		if !ours || name == "PILLION_CACHE" || serviceVariable.MatchString(name) || slices.ContainsFunc(flags, func(f string) bool { return variable(f) == name }) {
			continue
		}
		sentence := "the environment variable " + name + " sets no flag"
		if closest := templates.Closest(flag, flags); closest != "" {
			sentence += "; did you mean " + variable(closest) + "?"
		}
		all = append(all, sentence)
	}
	return all
}
