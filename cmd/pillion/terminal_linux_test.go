// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// onTerminal runs f with a terminal of a type, and with or without NO_COLOR.
func onTerminal(t *testing.T, kind, noColor string, f func(terminal *os.File)) string {
	t.Helper()
	t.Setenv("TERM", kind)
	t.Setenv("NO_COLOR", noColor)
	t.Setenv("COLUMNS", "")
	return clitest.OnTerminal(t, f)
}

// progress matches what [cli.Progress] writes, and removes, if a command takes longer than two seconds.
var progress = regexp.MustCompile(`(\r[^\r\n]{60,})+\r`)

// control matches what controls a terminal.
var control = regexp.MustCompile("\x1b[^m]*m|\r")

// TestOnTerminal checks that status and rollout show problems in red and shares as bars on a terminal. Without colors,
// and in a pipe, they write the same words.
func TestOnTerminal(t *testing.T) {
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"status shop", []string{terminal.Red + "3 pods in 1 namespace", "  " + terminal.Red + "██████████"}},
		{"status nowhere", []string{terminal.Red + "pillion: "}},
		{"rollout --dry-run shop", []string{terminal.Bold + "3 of 3 pods are not current:", "  " + terminal.Yellow + strings.Repeat("█", 20)}},
		{"rollout --dry-run nowhere", []string{terminal.Red + "pillion: "}},
	} {
		t.Run(c.command, func(t *testing.T) {
			a := newPagedAPI(3)
			a.objects["/api/v1"] = map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{}}
			a.objects["/api/v1/namespaces/shop"] = a.lists["/api/v1/namespaces"](0)
			args := append(strings.Fields(c.command), "--kubeconfig", a.kubeconfig(t))
			command := func(terminal *os.File) { run(args, nil, terminal, terminal) }
			colored := progress.ReplaceAllString(onTerminal(t, "xterm", "", command), "")
			for _, want := range c.want {
				if !strings.Contains(colored, want) {
					t.Errorf("no %q in\n%q", want, colored)
				}
			}
			plain := progress.ReplaceAllString(onTerminal(t, "xterm", "1", command), "")
			if dumb := progress.ReplaceAllString(onTerminal(t, "dumb", "", command), ""); dumb != plain {
				t.Errorf("TERM=dumb gives\n%q\nNO_COLOR=1 gives\n%q", dumb, plain)
			}
			var piped strings.Builder
			run(args, nil, &piped, &piped)
			if strings.ContainsAny(piped.String(), "\x1b\r█") {
				t.Errorf("in a pipe, it writes\n%q", &piped)
			}
			for _, words := range []string{plain, strings.ReplaceAll(control.ReplaceAllString(colored, ""), "█", "")} {
				if got, want := strings.Fields(words), strings.Fields(piped.String()); strings.Join(got, " ") != strings.Join(want, " ") {
					t.Errorf("on a terminal, it writes\n%q\nand in a pipe\n%q", got, want)
				}
			}
		})
	}
}

// rollHalf is a rollout that updates one of four pods and skips one. It leaves one, and another one is current.
func rollHalf(screen *rolloutScreen) {
	pod := func(action rollout.Action) []*rollout.Pod { return []*rollout.Pod{{Name: "a", Action: action}} }
	screen.printPlan(&cluster.Targets{Pods: 4, Workloads: []*rollout.Workload{
		{Namespace: "shop", Kind: "Pod", Name: "bare", Pods: 1, Way: rollout.Cannot, Why: "nothing would create it again\x1b[2J", Behind: pod(rollout.Replace)},
		{Namespace: "shop", Kind: "Deployment", Name: "web", Pods: 1, Way: rollout.Restart, Why: "args of agent", Behind: pod(rollout.Replace)},
		{Namespace: "shop", Kind: "Deployment", Name: "db", Pods: 1, Way: rollout.Restart, Why: "args of agent", Behind: pod(rollout.Replace)},
	}})
	screen.reportEvent(executor.Event{Type: "workload", Namespace: "shop", Workload: "Deployment/web", Done: 1, Total: 2})
	screen.reportEvent(executor.Event{Type: "skipped", Namespace: "shop", Workload: "Deployment/db", Message: "it is gone", Done: 2, Total: 2})
	screen.clearBar()
	screen.printEnd()
}

// TestRolloutOnTerminal checks the bars, the skipped pods and the end of a rollout.
func TestRolloutOnTerminal(t *testing.T) {
	both := func(terminal *os.File) {
		rollHalf(&rolloutScreen{w: cli.NewScreen(terminal), stderr: cli.NewScreen(terminal)})
	}
	cells := func(style string, n int) string { return terminal.Text(true, style, strings.Repeat("█", n)) }
	colored := onTerminal(t, "xterm", "", both)
	for _, want := range []string{
		"\n  " + cells(terminal.Green, 5) + cells(terminal.Yellow, 10) + cells(terminal.Red, 5) + "\n",
		terminal.Red + "  cannot   shop Pod/bare, 1 pod: nothing would create it again\\u001b[2J",
		"\r[" + cells(terminal.Green, 10) + cells(terminal.Dim, 10) + "] 1 of 2 pods",
		terminal.Yellow + "2/2 shop Deployment/db: skipped, it is gone",
		"\r[" + cells(terminal.Green, 10) + cells(terminal.Yellow, 10) + "] 2 of 2 pods",
		terminal.Red + "Updated 1 pod. Left 1 pod that it cannot update.",
	} {
		if !strings.Contains(colored, want) {
			t.Errorf("no %q in\n%q", want, colored)
		}
	}
	plain := onTerminal(t, "xterm", "1", both)
	if !strings.Contains(plain, "\r[##########..........] 1 of 2 pods") || strings.ContainsAny(plain, "\x1b█") {
		t.Errorf("with NO_COLOR, it writes\n%q", plain)
	}
	var piped strings.Builder
	rollHalf(&rolloutScreen{w: cli.NewScreen(&piped), stderr: cli.NewScreen(&piped)})
	if !strings.Contains(piped.String(), "1/2 shop Deployment/web: replaced its pods\n2/2 shop Deployment/db: skipped, it is gone\nUpdated 1 pod.") || strings.ContainsAny(piped.String(), "\x1b\r█") {
		t.Errorf("in a pipe, it writes\n%q", &piped)
	}
}
