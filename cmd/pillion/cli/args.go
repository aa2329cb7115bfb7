// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NoArguments rejects arguments, and suggests what the user probably meant.
func NoArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.Flags().Lookup("filename") != nil:
		return fmt.Errorf("%s takes no arguments; did you mean --filename %s?", cmd.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
}

// OneOf returns an error if a flag does not have one of the allowed values.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s must be one of %s, not %q", flag, strings.Join(allowed, ", "), value)
}
