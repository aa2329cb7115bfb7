// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

func newVersion() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  pillion version
  pillion version -o json`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return cli.OneOf("output", output, "text", "json", "yaml") },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			v := cli.BuildVersion()
			switch output {
			case "json":
				return cli.WriteJSON(cmd.OutOrStdout(), v)
			case "yaml":
				return cli.WriteYAML(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v)
			return err
		}),
	}
	cli.OutputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}
