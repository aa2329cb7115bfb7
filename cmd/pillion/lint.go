// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/templates"
)

// lintOptions are the flags of lint.
type lintOptions struct {
	output  string
	values  []string
	server  bool
	cluster clusterOptions
	ns      string
}

func newLint() *cobra.Command {
	o := &lintOptions{}
	cmd := &cobra.Command{
		Use:   "lint PATH...",
		Short: "Check templates",
		Long: `Lint checks template files, all template files in folders, or what it reads from
standard input (-), by loading them just as serve and inject do. It writes one
line for each problem:

  file:line: path: message

(what is over 100 columns goes on in indented lines; for scripts there is -o json)
and exits with 0 when there is none, 1 when there are some, and 2 when it was
called wrongly.

Where there is none it tries each template on sample pods and says which Pod
Security level it keeps to by itself, and what keeps it from the next; whether
it changes a pod's quality of service class; what a pod requests more; what is
probably a mistake; and which templates are in each other's way. With --server
an API server is asked too whether it takes a pod with the template in it (a dry
run: nothing is created, but it takes the right to create pods); one that it could
not be asked about is a problem too.

-o json writes one object: problems (file, line, path, message) and templates, each
with template, podSecurity, why (not a stricter level, or not tried), qos (from and
to), requests, hints, needs (parameters without a default), denied (whether a pod
without those is refused), conflicts, and with --server taken or refused. What does
not apply is left out.`,
		Example: `  pillion lint templates/
  pillion lint log-agent.yaml proxy.yaml -o json

  # A parameter without a default gets a sample, or what you say.
  pillion lint templates/ --set fluent-bit.host=logs.example.com

  # Does the API server take it?
  pillion lint templates/ --server -n sandbox`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the files or folders to check")
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: does(func(cmd *cobra.Command, paths []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), paths)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.values, "set", nil, "a parameter of the sample pods, `TEMPLATE.PARAM=VALUE`; may be repeated")
	f.BoolVar(&o.server, "server", false, "have an API server validate a sample pod for each template, in a dry run")
	o.cluster.flags(cmd, &o.ns)
	outputFlag(cmd, &o.output, "text", "json")
	return cmd
}

func (o *lintOptions) check() error {
	if err := oneOf("output", o.output, "text", "json"); err != nil {
		return err
	}
	_, err := pairs("set", o.values)
	return err
}

// linted is what lint has to say. Its JSON is a format that people script on.
type linted struct {
	Problems  templates.Problems `json:"problems"`
	Templates []trial            `json:"templates"`

	server bool // whether an API server was to be asked
}

// trial is what was tried, and what an API server said of it: neither, where it was not asked.
type trial struct {
	fit.Trial

	Taken   bool   `json:"taken,omitempty"`
	Refused string `json:"refused,omitempty"`
}

func (o *lintOptions) run(ctx context.Context, stdin io.Reader, w io.Writer, paths []string) error {
	set, err := lintedSet(stdin, paths)
	found := linted{Problems: templates.Problems{}, Templates: []trial{}, server: o.server}
	if err != nil && !errors.As(err, &found.Problems) {
		return err
	}
	if err == nil {
		if err := o.try(ctx, &found, set); err != nil {
			return err
		}
	}
	if o.output == "json" {
		err = writeJSON(w, found)
	} else {
		_, err = io.WriteString(w, fold(w, found.text()))
	}
	if err == nil && found.bad() {
		err = errTold
	}
	return err
}

func lintedSet(stdin io.Reader, paths []string) (*templates.Set, error) {
	if !slices.Equal(paths, []string{"-"}) {
		return loadTemplates(paths)
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return nil, err
	}
	set, err := templates.Compile(templates.File{Path: "standard input", Data: text})
	if err == nil && len(set.Templates) == 0 {
		err = errors.New("there is no template in what was read")
	}
	return set, err
}

func (o *lintOptions) try(ctx context.Context, found *linted, set *templates.Set) error {
	values, err := pairs("set", o.values)
	if err != nil {
		return err
	}
	if err := fit.CheckValues(set, values); err != nil {
		return usageError{fmt.Errorf("--set: %w", err)}
	}
	e, err := fit.NewEvaluator()
	if err != nil {
		return err
	}
	for _, t := range e.Try(set, values) {
		found.Templates = append(found.Templates, trial{Trial: t})
	}
	if !o.server {
		return nil
	}
	c, err := o.cluster.connect()
	if err != nil {
		return err
	}
	for i := range found.Templates {
		if t := &found.Templates[i]; t.Pod != nil {
			if t.Refused, err = c.dryRun(ctx, c.namespaceOr(o.ns), t.Pod); err != nil {
				return err
			}
			t.Taken = t.Refused == ""
		}
	}
	return nil
}

func (l *linted) bad() bool {
	return len(l.Problems) > 0 || l.server && slices.ContainsFunc(l.Templates, func(t trial) bool { return !t.Taken })
}

// text is one line for each problem, else one for each thing to know.
func (l *linted) text() string {
	if len(l.Problems) > 0 {
		return l.Problems.Error() + "\n"
	}
	var b strings.Builder
	for i := range l.Templates {
		t := &l.Templates[i]
		say := func(format string, args ...any) {
			b.WriteString(t.Template + ": " + fmt.Sprintf(format, args...) + "\n")
		}
		switch {
		case t.PodSecurity == "":
			say("well-formed, but could not be tried: %s", t.Why)
		case t.Why == "":
			say("fine; Pod Security: %s", t.PodSecurity)
		default:
			say("fine; Pod Security: %s, %s", t.PodSecurity, t.Why)
		}
		for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
			if to := t.QoS[class]; to != "" {
				say("a %s pod becomes %s", class, to)
			}
		}
		if len(t.Requests) > 0 {
			var more []string
			for _, name := range slices.Sorted(maps.Keys(t.Requests)) {
				q := t.Requests[name]
				more = append(more, q.String()+" "+string(name))
			}
			say("a pod requests %s more", strings.Join(more, " and "))
		}
		for _, hint := range t.Hints {
			say("hint: %s", hint)
		}
		if len(t.Needs) > 0 {
			or := "does not get it"
			if t.Denied {
				or = "is refused"
			}
			say("a pod or its namespace has to set %s, or the pod %s (no default)", strings.Join(t.Needs, ", "), or)
		}
		if t.Conflicts != "" {
			say("not beside the others: %s", t.Conflicts)
		}
		switch {
		case t.Refused != "":
			say("the API server refuses a pod with it: %s", t.Refused)
		case t.Taken:
			say("the API server takes a pod with it")
		case l.server:
			say("the API server was not asked")
		}
	}
	return b.String()
}

// loadTemplates loads files and folders. What is one and what is the other is
// looked at every time: a path may change from one to the other.
func loadTemplates(paths []string) (*templates.Set, error) {
	return loadAgain(new(templates.Loader), paths)
}

// loadAgain is loadTemplates for who does so again and again.
func loadAgain(loader *templates.Loader, paths []string) (*templates.Set, error) {
	sources := make([]templates.Source, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			sources[i] = templates.Source{FS: os.DirFS(path), Name: ".", Path: path}
		} else {
			sources[i] = templates.Source{FS: os.DirFS(filepath.Dir(path)), Name: filepath.Base(path), Path: path}
		}
	}
	set, err := loader.Load(sources...)
	if err == nil && len(set.Templates) == 0 {
		return set, errNoTemplates
	}
	return set, err
}

// errNoTemplates comes with an empty set. A cluster may have none for a while;
// who names files on a command line meant to have some.
var errNoTemplates = errors.New("there is no *.yaml, *.yml or *.json with a template in the files and folders given (folders below them are not searched)")
