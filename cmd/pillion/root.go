// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/templates/problem"
)

// The exit codes.
const (
	exitOK      = 0
	exitProblem = 1
	exitUsage   = 2
	exitTrouble = 2 // of commands whose exitProblem is no error
)

// run executes the program and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runAs("pillion", args, stdin, stdout, stderr)
}

// runAs is run for an executable's name. As kubectl-pillion, kubectl runs it for "kubectl
// pillion", and the help shows that name.
func runAs(file string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	switch strings.TrimSuffix(filepath.Base(file), ".exe") {
	case "kubectl-pillion":
		asPlugin(root)
	case "kubectl_complete-pillion": // kubectl's completion runs this with the typed words
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	out, told := cli.NewScreen(stdout), cli.NewScreen(stderr)
	defer out.End()
	defer told.End()
	stdout, stderr = out, told
	root.SetOut(stdout)
	narrowHelp(root, cli.WidthOf(stdout))
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	switch failed := (*cli.CommandError)(nil); {
	case err == nil:
		return exitOK
	case errors.Is(err, cli.ErrTold):
		return exitProblem
	case errors.Is(err, cli.ErrIncomplete):
		return exitTrouble
	case errors.As(err, &failed):
		_ = cli.Say(stderr, terminal.Red, "pillion: "+cli.PlainWords(cluster.NoAnswer(err))) // an error cannot be reported any more
		if cmd.Annotations[cli.Trouble] != "" {
			return exitTrouble
		}
		return exitProblem
	}
	fmt.Fprintf(stderr, "%s\nsee '%s --help'\n", cli.Fold(stderr, "pillion: "+problem.OneLine(cli.PlainWords(wrongCommand(root, err)))), cmd.CommandPath())
	return exitUsage
}

// wrongFlag suggests the flag that the user probably meant, or explains what the flag takes.
func wrongFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if closest := problem.Closest(unknown.GetSpecifiedName(), names); closest != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, closest)
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s must be %s, not %q", invalid.GetFlag().Name, cli.KindOf(invalid.GetFlag()), invalid.GetValue())
	}
	return err
}

// wrongCommand suggests the command that the user probably meant, instead of cobra's message.
func wrongCommand(root *cobra.Command, err error) error {
	rest, ok := strings.CutPrefix(err.Error(), "unknown command ")
	quoted, quoteErr := strconv.QuotedPrefix(rest)
	if !ok || quoteErr != nil {
		return err
	}
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	typed, _ := strconv.Unquote(quoted) // cobra quotes it
	if closest := problem.Closest(typed, names); closest != "" {
		return fmt.Errorf("there is no command %s; did you mean %s?", quoted, closest)
	}
	return fmt.Errorf("there is no command %s", quoted)
}

// asPlugin makes the help of a command and its subcommands show the names that kubectl users
// type.
func asPlugin(cmd *cobra.Command) {
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pillion"}
	}
	cmd.Example = regexp.MustCompile(`(?m)(^ *|\| *)pillion `).ReplaceAllString(cmd.Example, "${1}kubectl pillion ")
	for _, c := range cmd.Commands() {
		asPlugin(c)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "pillion",
		Short: "Add sidecars to pods",
		Long: `Pillion adds sidecars from templates to pods. It only adds; it never replaces or
removes anything. It can explain every decision.

Environment variables can set flags: PILLION_ADMIN_LISTEN sets --admin-listen, and
so on. If both are set, Pillion uses the flag.`,
		Example: `  # Check templates before they are used.
  pillion lint templates/

  # Print what inject would change in a Deployment.
  pillion inject -f web.yaml --templates templates/ | diff web.yaml -

  # Serve the admission webhooks.
  pillion serve -t /etc/pillion/templates --tls-cert-file tls.crt --tls-key-file tls.key`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // see wrongCommand
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Name() != "serve" && cmd.Name() != "controller" { // these have a log
				for _, strange := range cli.StrangeVariables(cmd.Root(), os.Environ()) {
					fmt.Fprintln(cmd.ErrOrStderr(), cli.Fold(cmd.ErrOrStderr(), "pillion: "+strange))
				}
			}
			return cli.Configure(cmd.Flags())
		},
	}
	root.Version = strings.TrimPrefix(cli.BuildVersion().String(), "pillion ") // --version prints the name before it
	root.Flags().Bool("version", false, "print the version of this program")   // cobra's own would have -v, which is --verbose in commands
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(newServe(), newController(), newInject(), newUninject(), newExplain(), newDiff(), newLint(), newTest(), newPlayground(), newPolicy(), newImport(), newCheck(), newCerts(), newStatus(), newRollout(), newAudit(), newVersion())
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Example = "  pillion help inject"
		help.Args = func(_ *cobra.Command, topic []string) error {
			_, _, err := root.Find(topic)
			return err
		}
	}
	root.InitDefaultCompletionCmd()
	if shells, _, err := root.Find([]string{"completion"}); err == nil && shells != root {
		shells.Short, shells.Annotations = "Write completion for your shell", cli.FailsIf("")
		shells.Example = "  source <(pillion completion bash)"
		shells.Args = cobra.ArbitraryArgs
		shells.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no completion for %q; use bash, fish, powershell or zsh", args[0])
			}
			return cmd.Help()
		}
	}
	return root
}
