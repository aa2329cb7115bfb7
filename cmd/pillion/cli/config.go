// SPDX-License-Identifier: Apache-2.0

package cli

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
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

const (
	environmentPrefix = "PILLION_"
	// sourceAnnotation is the annotation of a flag with the source of its value. Flags from the
	// command line do not have it.
	sourceAnnotation = "pillion.dev/source"
)

// Configure sets every flag that was not given on the command line: from its environment
// variable, or else from the file that --config names. For example, --admin-listen gets its
// value from PILLION_ADMIN_LISTEN, or from admin-listen in the file. A list in a variable is
// separated by commas.
func Configure(flags *pflag.FlagSet) error {
	s := settings{Viper: viper.New(), fromEnvironment: func(flag string) bool { return os.Getenv(Variable(flag)) != "" }}
	s.SetEnvPrefix(strings.TrimSuffix(environmentPrefix, "_"))
	s.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	s.AutomaticEnv()
	if err := s.readSources(flags, os.ReadFile); err != nil {
		return &CommandError{err}
	}
	return s.fillFlags(flags)
}

// ConfigureAs sets flags as [Configure] would in another process, with its variables and files.
func ConfigureAs(flags *pflag.FlagSet, variables map[string]string, readFile func(path string) ([]byte, error)) error {
	s := settings{Viper: viper.New(), fromEnvironment: func(flag string) bool { return variables[Variable(flag)] != "" }}
	flags.VisitAll(func(f *pflag.Flag) {
		if s.fromEnvironment(f.Name) && !f.Changed {
			s.Set(f.Name, variables[Variable(f.Name)])
		}
	})
	if err := s.readSources(flags, readFile); err != nil {
		return err
	}
	return s.fillFlags(flags)
}

// ConfigureAgain sets flags as [Configure] does. Flags in given that were set on the command
// line keep those values.
func ConfigureAgain(flags, given *pflag.FlagSet) error {
	var wrong []error
	given.VisitAll(func(f *pflag.Flag) {
		if to := flags.Lookup(f.Name); to != nil && ValueSource(f) == "flag" {
			wrong = append(wrong, assignFlag(to, valueOf(f)))
			to.Changed = true
		}
	})
	wrong = append(wrong, Configure(flags))
	return errors.Join(wrong...)
}

// valueOf returns the value of a flag for [assignFlag].
func valueOf(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return f.Value.String()
}

// Variable returns the environment variable of a flag.
//
// No flag may be named "port", "service-host" or "service-port": for a Service named pillion,
// Kubernetes sets such variables in the pods of its namespace.
func Variable(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// settings are the values of flags from all sources: the command line wins over the
// environment, and the environment over the file. Viper finds the values. It does not report
// the source of a value or its line in the file.
type settings struct {
	*viper.Viper

	fromEnvironment func(flag string) bool
	path            string // of the file
	lines           map[string]int
}

// readSources binds the flags, and reads the file that --config names, if any.
func (s *settings) readSources(flags *pflag.FlagSet, readFile func(path string) ([]byte, error)) error {
	if err := s.BindPFlags(flags); err != nil {
		return err
	}
	if s.path = s.GetString("config"); s.path == "" || flags.Lookup("config") == nil {
		return nil
	}
	data, err := readFile(s.path)
	if err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	if s.lines, err = checkConfig(s.path, data, flags); err != nil {
		return err
	}
	s.SetConfigType("yaml")
	return s.ReadConfig(bytes.NewReader(data))
}

// fillFlags sets the flags that were not given.
func (s *settings) fillFlags(flags *pflag.FlagSet) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || !s.IsSet(f.Name) {
			return
		}
		source, at := "file "+s.path, fmt.Sprintf("%s:%d: %s", s.path, s.lines[f.Name], f.Name)
		if s.fromEnvironment(f.Name) {
			source = "environment " + Variable(f.Name)
			at = Variable(f.Name) + " in the environment"
		}
		if err := assignFlag(f, s.Get(f.Name)); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: must be %s, not %q", at, KindOf(f), s.GetString(f.Name)))
			return
		}
		f.Changed = true
		f.Annotations = map[string][]string{sourceAnnotation: {source}}
	})
	return errors.Join(wrong...)
}

// assignFlag sets a flag to a value, or a list to several.
func assignFlag(f *pflag.Flag, value any) error {
	switch items := value.(type) {
	case []string:
		return f.Value.(pflag.SliceValue).Replace(items)
	case []any:
		texts := make([]string, len(items)) // an empty list is a value too
		for i := range items {
			texts[i] = fmt.Sprint(items[i])
		}
		return f.Value.(pflag.SliceValue).Replace(texts)
	}
	return f.Value.Set(fmt.Sprint(value))
}

// checkConfig checks a YAML file whose keys are names of flags. It returns the lines of the
// keys. Its error has one line for each invalid key.
func checkConfig(path string, data []byte, flags *pflag.FlagSet) (map[string]int, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil // only comments
	case err != nil:
		line, message := jsontree.WhereYAML(data, err)
		return nil, fmt.Errorf("%s:%d: %s", path, line, message)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file must contain only one YAML document", path)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: must be names of flags and their values, for example \"log-level: info\"", path, root.Line)
	}
	lines := map[string]int{}
	var wrong []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		problem := checkKey(flags, key.Value, value)
		if line, twice := lines[key.Value]; twice {
			problem = fmt.Sprintf("is also in line %d", line)
		}
		if lines[key.Value] = key.Line; problem != "" {
			wrong = append(wrong, fmt.Errorf("%s:%d: %s: %s", path, key.Line, key.Value, problem))
		}
	}
	return lines, errors.Join(wrong...)
}

// checkKey returns what is wrong with a key or its value, or "".
func checkKey(flags *pflag.FlagSet, name string, value *yaml.Node) string {
	f := flags.Lookup(name)
	if f == nil || slices.Contains(notInFile(), name) {
		if closest := problem.Closest(name, flagNames(flags)); closest != "" {
			return "unknown key; did you mean " + closest + "?"
		}
		return "unknown key"
	}
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	_, list := f.Value.(pflag.SliceValue)
	switch {
	case list && value.Kind == yaml.SequenceNode:
		if slices.ContainsFunc(value.Content, func(item *yaml.Node) bool { return item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" }) {
			return "must be " + KindOf(f)
		}
		return ""
	case !list && value.Kind == yaml.ScalarNode && kindOf(f).fits(value):
		return ""
	case value.Kind == yaml.ScalarNode && value.Value != "":
		return "must be " + KindOf(f) + ", not " + value.Value
	}
	return "must be " + KindOf(f)
}

// valueKind describes the values of flags of one type.
type valueKind struct {
	words string
	fits  func(*yaml.Node) bool // reports whether a YAML scalar is such a value
}

// valueKinds are the kinds of values by the types of flags. All other types are integers.
var valueKinds = map[string]valueKind{
	"string":      {`a string (in "quotes" if YAML would read it as another type)`, matchesTag("!!str")},
	"bool":        {"true or false", matchesTag("!!bool")},
	"duration":    {"a duration such as 5s or 1m30s", parsesWith(time.ParseDuration)},
	"quantity":    {"a quantity such as 64Mi", parsesWith(resource.ParseQuantity)},
	"stringSlice": {"a list of strings, for example [a, b]", nil},
	"stringArray": {"a list of strings, for example [a, b]", nil},
	"float64":     {"a number", matchesTag("!!float", "!!int")},
}

func kindOf(f *pflag.Flag) valueKind {
	if kind, ok := valueKinds[f.Value.Type()]; ok {
		return kind
	}
	return valueKind{"a whole number", matchesTag("!!int")}
}

func matchesTag(tags ...string) func(*yaml.Node) bool {
	return func(n *yaml.Node) bool { return slices.Contains(tags, n.ShortTag()) }
}

func parsesWith[T any](parse func(string) (T, error)) func(*yaml.Node) bool {
	return func(n *yaml.Node) bool { _, err := parse(n.Value); return err == nil }
}

// KindOf returns the kind of value that a flag takes, in words.
func KindOf(f *pflag.Flag) string {
	if c, ok := f.Value.(choice); ok {
		return c.allowedValues()
	}
	return kindOf(f).words
}

// notInFile returns the flags that are not settings of the server.
func notInFile() []string { return []string{"config", "help", "print-config"} }

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notInFile(), f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// PrintConfig writes the values of all flags in the format of --config, and where they come
// from. It contains no secrets: flags only name the files with secrets.
func PrintConfig(w io.Writer, flags *pflag.FlagSet) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInFile(), f.Name) {
			return
		}
		value := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, item := range list.GetSlice() {
				value.Content = append(value.Content, yamledit.String(item))
			}
		} else if f.Value.Type() == "string" {
			value = yamledit.String(f.Value.String())
		}
		value.LineComment = ValueSource(f)
		root.Content = append(root.Content, yamledit.String(f.Name), value)
	})
	encoder := yaml.NewEncoder(w)
	return errors.Join(encoder.Encode(root), encoder.Close())
}

// ValueSource returns where the value of a flag comes from: "flag", "default", "environment NAME" or "file PATH".
func ValueSource(f *pflag.Flag) string {
	switch from := f.Annotations[sourceAnnotation]; {
	case len(from) > 0:
		return from[0]
	case f.Changed:
		return "flag"
	}
	return "default"
}

// serviceVariable matches the variables that Kubernetes sets for Services named pillion, or
// pillion-something.
var serviceVariable = regexp.MustCompile(`^PILLION_(.+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// StrangeVariables returns sentences about variables (as NAME=VALUE) that look as if they were
// meant for Pillion, but belong to no flag of any command.
func StrangeVariables(root *cobra.Command, environ []string) (all []string) {
	var flags []string
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		bare, ours := strings.CutPrefix(name, environmentPrefix)
		flag := strings.ReplaceAll(strings.ToLower(bare), "_", "-")
		if !ours || serviceVariable.MatchString(name) || slices.ContainsFunc(flags, func(f string) bool { return Variable(f) == name }) {
			continue
		}
		sentence := "the environment variable " + name + " sets no flag"
		if closest := problem.Closest(flag, flags); closest != "" {
			sentence += "; did you mean " + Variable(closest) + "?"
		}
		all = append(all, sentence)
	}
	return all
}
