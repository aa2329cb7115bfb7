// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates/tree"
)

// OutputFlag adds --output with the formats of a command. The first one is the default.
func OutputFlag(cmd *cobra.Command, output *string, values ...string) {
	cmd.Flags().StringVarP(output, "output", "o", values[0], "write the result in this format:")
	Choices(cmd, "output", values...)
}

// Choices adds the possible values of a flag to its usage and to its completion.
func Choices(cmd *cobra.Command, flag string, values ...string) {
	cmd.Flags().Lookup(flag).Usage += " `" + strings.Join(values, "|") + "`"
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// WriteJSON writes indented JSON, for users and programs.
func WriteJSON(w io.Writer, v any) error { return JSONEncoder(w, "  ").Encode(v) }

// WriteYAML writes the YAML of what [WriteJSON] writes, in the same order.
func WriteYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := WriteJSON(&text, v); err != nil {
		return err
	}
	n, err := tree.Parse(text.Bytes())
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
