// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/templates/problem"
)

// PlainWords returns the message of an error. If a file does not exist, it leaves out the name
// of the system call. If the file is a URL, it adds how to read it.
func PlainWords(err error) string {
	at, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err.Error()
	}
	plain := strings.TrimPrefix(at.Error(), at.Op+" ")
	if strings.Contains(at.Path, "://") {
		plain = at.Path + ": this is a URL, but Pillion reads files; download it, and use - for standard input: curl -fsSL URL | pillion ..."
	}
	return strings.Replace(err.Error(), at.Error(), problem.OneLine(plain), 1) // the path may have line breaks
}

// CommandError is an error of a command that ran. Every other error that cobra returns is
// about the command line.
type CommandError struct{ Err error }

// Error implements error.
func (e *CommandError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the command.
func (e *CommandError) Unwrap() error { return e.Err }

// UsageError is an error about the command line that a command finds while it runs.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e UsageError) Unwrap() error { return e.Err }

// ErrTold is the error of a command that has already printed the problems.
var ErrTold = errors.New("there were problems")

// ErrIncomplete is the error of a command that has already printed why its result is incomplete.
var ErrIncomplete = errors.New("the result is incomplete")

// Action wraps the function of a command: its errors become [CommandError], unless they are a
// [UsageError].
func Action(f func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		if _, wrongly := errors.AsType[UsageError](err); wrongly || err == nil {
			return err
		}
		return &CommandError{err}
	}
}

// OneLine returns the message of an error as one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Failure is the annotation of a command with the cases in which it exits with 1.
const Failure = "failure"

// Trouble is the annotation of a command that exits with 2 if there is an error, because 1 means something else.
const Trouble = "trouble"

// FailsIf describes these cases. The table in manifests/docs/commands.md shows them.
func FailsIf(cases string) map[string]string { return map[string]string{Failure: cases} }
