// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

func newVersion() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Annotations: cli.FailsIf(""),
		Example: `  pillion version
  pillion version -o json`,
		Args: cli.NoArguments,
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			v := cli.BuildVersion()
			return cli.Print(cmd.OutOrStdout(), output, v, func() string { return v.String() + "\n" })
		}),
	}
	cli.OutputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}
