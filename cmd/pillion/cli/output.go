// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// OutputFlag adds --output with the formats of a command. The first one is the default.
func OutputFlag(cmd *cobra.Command, output *string, values ...string) {
	cmd.Flags().StringVarP(output, "output", "o", values[0], "write the result in this format:")
	Choices(cmd, "output", values...)
}

// Choices limits a flag to these values, and adds them to its usage.
func Choices(cmd *cobra.Command, flag string, values ...string) {
	cmd.Flags().Lookup(flag).Usage += " `" + strings.Join(values, "|") + "`"
	Limit(cmd, flag, values...)
}

// Limit limits a flag to these values, and completes them.
func Limit(cmd *cobra.Command, flag string, values ...string) {
	f := cmd.Flags().Lookup(flag)
	f.Value = choice{f.Value, values}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// choice is the value of a flag that allows only some values.
type choice struct {
	pflag.Value
	allowed []string
}

// Set implements [pflag.Value].
func (c choice) Set(text string) error {
	if !slices.Contains(c.allowed, text) {
		return errors.New("must be " + c.allowedValues())
	}
	return c.Value.Set(text)
}

func (c choice) allowedValues() string { return "one of " + strings.Join(c.allowed, ", ") }

// Print writes a result in a format of --output: as JSON, as YAML, or else as the text.
func Print(w io.Writer, output string, result any, text func() string) error {
	switch output {
	case "json":
		return WriteJSON(w, result)
	case "yaml":
		return WriteYAML(w, result)
	}
	_, err := io.WriteString(w, text())
	return err
}

// WriteJSON writes indented JSON, for users and programs.
func WriteJSON(w io.Writer, v any) error { return JSONEncoder(w, "  ").Encode(v) }

// WriteYAML writes the YAML of what [WriteJSON] writes, in the same order.
func WriteYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := WriteJSON(&text, v); err != nil {
		return err
	}
	n, err := jsontree.Parse(text.Bytes())
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(yamledit.FromTree(n)), encoder.Close())
}

// JSONEncoder returns an encoder that escapes nothing for HTML. If indent is "", it writes one line for each value.
func JSONEncoder(w io.Writer, indent string) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder
}
