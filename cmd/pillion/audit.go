// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/report/audit"
)

const (
	// maxEvent limits the length of a line. It is far more than an event with an object, a patch
	// and a response can have.
	maxEvent = 64 << 20
	// maxTold limits the number of errors that are printed about one file.
	maxTold = 5
)

func newAudit() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:         "audit [FILE...]",
		Short:       "Report what audit logs contain about pods and their webhooks",
		Annotations: cli.FailsIf("there is a loop, Pillion changed a pod twice, or a pod passed because Pillion could not be called"),
		Long: `Audit reads audit logs of API servers (JSON lines, audit.k8s.io/v1) from files, or
from standard input (-, or no FILE), also compressed with gzip. It counts, for requests
that create or change pods:

  decisions     Pillion's decisions, by namespace, webhook and template
  secondRounds  webhooks that changed a pod again when they were called again
  loops         webhooks whose patch was applied to the same pod again: in the second
                round of a request, or in three requests
  failedOpen    Pillion's webhooks that could not be called while pods were accepted

It prints the name of one pod as an example for each. The audit policy must include
pods. To find loops, it needs the level RequestResponse; otherwise Metadata is enough.

-o json writes one object with these fields and summary, requests, decided (requests
with a decision) and dryRuns.

The exit code is 0 if audit found no problem. It is 1 if Pillion changed a pod in a
second round, if there is a loop, or if pods were accepted while Pillion could not be
called. It is also 1 if a file or a line cannot be read, and 2 if audit was called with
wrong flags or arguments. Audit prints which lines it cannot read and counts the others.
A line that is not complete does not change the exit code, because the API server may be
writing it. A file may be empty, because the API server may have just started it, but
empty standard input is an error.`,
		Example: `  pillion audit /var/log/kubernetes/audit.log
  pillion audit audit.log audit-*.log.gz

  # Which pods did Pillion change twice, and which other webhooks changed them?
  pillion audit audit.log -o json | jq .secondRounds`,
		RunE: cli.Action(func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				files = []string{"-"}
			}
			return runAudit(files, output, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	cli.OutputFlag(cmd, &output, "text", "json")
	return cmd
}

func runAudit(files []string, output string, stdin io.Reader, stdout, stderr io.Writer) error {
	log, whole, lines := audit.New(), true, 0
	for _, name := range files {
		tell := func(text string) { fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: "+text)) }
		if name == "-" {
			n, ok := readAudit(log, "standard input", stdin, tell)
			whole, lines = whole && ok, lines+max(n, 1) // without a line, too, it is an error to find no events: the program that should write to the pipe may have failed
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		n, ok := readAudit(log, name, file, tell)
		whole, lines = whole && ok, lines+n
		file.Close()
	}
	if log.Events() == 0 && lines > 0 {
		return errors.New("the input has no audit events; use audit logs of API servers (--audit-log-path)")
	}
	r := log.Report()
	err := cli.Print(stdout, output, r, func() string { return cli.Fold(stdout, r.Text()) })
	if err == nil && (r.Bad() || !whole) {
		err = cli.ErrTold
	}
	return err
}

// readAudit adds the lines of a file and prints an error for those that are not events. It
// returns the number of lines, and reports whether all of them were events. An incomplete last
// line is not an error, because the API server may still be writing it.
func readAudit(log *audit.Log, name string, r io.Reader, tell func(string)) (n int, whole bool) {
	told := 0
	n, whole = 1, true
	r, err := unzipReader(r)
	if err != nil {
		tell(fmt.Sprintf("%s: %v", name, err))
		return n, false
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	say := func(err error) {
		whole = whole && errors.Is(err, audit.ErrHalf)
		if told++; told <= maxTold {
			tell(fmt.Sprintf("%s:%d: %v", name, n, err))
		}
	}
	for ; lines.Scan(); n++ {
		if err := log.Add(lines.Bytes()); err != nil {
			say(err)
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("the line has more than %d MiB, so it is not an event; the rest of the file is ignored", maxEvent>>20)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		tell(fmt.Sprintf("%s: %v", name, path.Err))
		return n, false
	}
	if err != nil {
		told = 0
		say(err)
	} else if told > maxTold {
		tell(fmt.Sprintf("%s: %d more lines are not audit events", name, told-maxTold))
	}
	if err == nil {
		n-- // the number of the line after the last one
	}
	return n, whole
}

// unzipReader reads a log that the API server compressed when it rotated it (--audit-log-compress),
// and any other log unchanged.
func unzipReader(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" { // RFC 1952
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}
