// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
)

// completed is what a shell gets to complete.
func completed(t *testing.T, args ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(append([]string{cobra.ShellCompRequestCmd}, args...), nil, &out, &errs); code != exitOK {
		t.Errorf("%q: exit code %d: %s", args, code, &errs)
	}
	if strings.Contains(errs.String(), "pillion: ") {
		t.Errorf("%q: it writes %q", args, &errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, ":") }) // cobra's directive
	for i := range lines {
		lines[i], _, _ = strings.Cut(lines[i], "\t")
	}
	return lines
}

// TestComplete checks that completion offers each matching name of the cluster once.
func TestComplete(t *testing.T) {
	t.Parallel()
	a := explainAPI(t)
	file := a.kubeconfig(t)
	a.list(shopDeployments, thing("apps/v1", "Deployment", "shop", "web", nil), thing("apps/v1", "Deployment", "shop", "api", nil))
	a.list(shopPods, thing("v1", "Pod", "shop", "web-1", nil), thing("v1", "Pod", "shop", "web-2", nil), thing("v1", "Pod", "shop", "api-1", nil))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "t"}, "trial typo"},
		{[]string{"status", "shop", ""}, "off quiet trial typo"},
		{[]string{"status", "-n", "t"}, "trial typo"},
		{[]string{"status", "-n", "shop,t"}, "shop,trial shop,typo"},
		{[]string{"status", "--namespace=t"}, "trial typo"},
		{[]string{"status", "--system-namespace", "q"}, "quiet"},
		{[]string{"status", "--context", ""}, "c"},
		{[]string{"explain", "--context="}, "c"},
		{[]string{"explain", "-n", "t"}, "trial typo"},
		{[]string{"explain", "de"}, "deployment/"},
		{[]string{"explain", ""}, "cronjob/ daemonset/ deployment/ job/ pod/ podtemplate/ replicaset/ replicationcontroller/ statefulset/"},
		{[]string{"explain", "-n", "shop", "deploy/"}, "deploy/api deploy/web"},
		{[]string{"explain", "-n", "shop", "deploy/web", "deploy/"}, "deploy/api"},
		{[]string{"explain", "-n", "shop", "po/web"}, "po/web-1 po/web-2"},
		{[]string{"explain", "-n", "shop", "pod", "w"}, "web-1 web-2"},
		{[]string{"explain", "-n", "shop", "pod", "web-1", "w"}, "web-2"},
		{[]string{"explain", "-n", "shop", "secret/"}, ""},
		{[]string{"explain", "--template", "ag"}, "agent"},
		{[]string{"explain", "-t", "testdata/templates", "--template", "l"}, "log-agent"},
		{[]string{"rollout", "--template", "ag"}, "agent"},
		{[]string{"rollout", "t"}, "trial typo"},
	} {
		args := append([]string{c.args[0], "--kubeconfig", file}, c.args[1:]...)
		if got := strings.Join(completed(t, args...), " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	if got := completed(t, "policy", "-t", "testdata/templates", "--template", ""); !slices.Equal(got, []string{"log-agent"}) {
		t.Errorf("templates of files: %q", got)
	}
	if got := completed(t, "completion", ""); !slices.Contains(got, "fish") {
		t.Errorf("shells: %q", got)
	}
}

// TestCompleteTemplates checks that completion offers the templates of files, or the cluster's if
// no file is given.
func TestCompleteTemplates(t *testing.T) {
	t.Parallel()
	var paths []string
	o := &cluster.Options{}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	o.Flags(cmd)
	o.Kubeconfig = explainAPI(t).kubeconfig(t)
	if got, _ := o.CompleteTemplates(&paths)(cmd, nil, "+a"); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if got, _ := o.CompleteTemplates(&paths)(cmd, nil, ""); !slices.Equal(got, []string{"agent"}) {
		t.Errorf("of the cluster: %q", got)
	}
	paths = []string{"testdata/templates"}
	if got, _ := o.CompleteTemplates(&paths)(cmd, nil, "log"); !slices.Equal(got, []string{"log-agent"}) {
		t.Errorf("of files: %q", got)
	}
}

// TestCompleteUnreachable checks that completion offers and writes nothing if the cluster cannot be
// reached, or answers late.
func TestCompleteUnreachable(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts connections, but no program answers
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	forbidden := explainAPI(t)
	forbidden.forbids["/api/v1/namespaces"] = 9
	file := filepath.Join(t.TempDir(), "kubeconfig")
	for name, text := range map[string]string{
		"silent":        kubeconfigText("http://" + silent.Addr().String()),
		"refused":       kubeconfigText(strings.Replace(closedURL(), "https:", "http:", 1)),
		"no kubeconfig": "kind: Other",
		"forbidden":     "",
	} {
		path := file + strings.ReplaceAll(name, " ", "-")
		if text == "" {
			path = forbidden.kubeconfig(t)
		} else {
			must(t, os.WriteFile(path, []byte(text), 0o600))
		}
		for _, args := range [][]string{{"status", "--kubeconfig", path, ""}, {"explain", "--kubeconfig", path, "pod/"}, {"explain", "--kubeconfig", path, "-n", ""}} {
			if got := strings.Join(completed(t, args...), ""); got != "" && name != "forbidden" {
				t.Errorf("%s: %q completes %q", name, args, got)
			}
		}
	}
}

// TestCompletePlugin checks that completion does not wait for a credential plugin that hangs. If it
// does wait, this test does not end.
func TestCompletePlugin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun, end := filepath.Join(dir, "begun"), filepath.Join(dir, "end")
	t.Cleanup(func() { must(t, os.WriteFile(end, nil, 0o600)) })
	text := strings.Replace(kubeconfigText("https://127.0.0.1:1"), "user: {}", fmt.Sprintf(`user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, env: [{name: DIR, value: %q}],
args: ["-c", "touch \"$DIR/begun\"; until [ -e \"$DIR/end\" ] || [ ! -d \"$DIR\" ]; do sleep 0.1; done"]}}`, dir), 1)
	file := filepath.Join(dir, "kubeconfig")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	if got := strings.Join(completed(t, "status", "--kubeconfig", file, ""), " "); got != "" {
		t.Errorf("it completes %q", got)
	}
	if _, err := os.Stat(begun); err != nil {
		t.Errorf("the plugin was not asked: %v", err)
	}
}
