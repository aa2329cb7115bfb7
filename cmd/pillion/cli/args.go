// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

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
