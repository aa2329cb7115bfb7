// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestKubectlFlags checks the flags that all commands with a cluster have in common with kubectl: each request goes to the chosen
// cluster, as the chosen user, and the commands that are printed have the same flags.
func TestKubectlFlags(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	api := explainAPI(t)
	server := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			seen[fmt.Sprintf("%s as %s of %s", name, r.Header.Get("Impersonate-User"), strings.Join(r.Header.Values("Impersonate-Group"), ","))]++
			mu.Unlock()
			api.ServeHTTP(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: one,
contexts: [{name: one, context: {cluster: one, user: ann}}, {name: two, context: {cluster: two, user: ben}}],
clusters: [{name: one, cluster: {server: %q}}, {name: two, cluster: {server: %q}}],
users: [{name: ann, user: {as: ann}}, {name: ben, user: {as: ben}}]}`, server("one"), server("two")), 0o600))
	for _, row := range []struct {
		flags []string
		want  string
	}{
		{nil, "one as ann of "},
		{[]string{"--context", "two"}, "two as ben of "},
		{[]string{"--cluster", "two"}, "two as ann of "},
		{[]string{"--user", "ben"}, "one as ben of "},
		{[]string{"--as", "carl", "--as-group", "devs", "--as-group", "on call"}, "one as carl of devs,on call"},
		{[]string{"--request-timeout", "30"}, "one as ann of "},
	} {
		clear(seen)
		stdout, stderr, code := runWords(append([]string{"explain", "pod/web", "-n", "shop", "--kubeconfig", file}, row.flags...)...)
		if len(seen) != 1 || seen[row.want] == 0 {
			t.Errorf("%q: the requests are %v, want %q\n%d\n%s%s", row.flags, seen, row.want, code, stdout, stderr)
		}
	}
	stdout, stderr, _ := runWords("status", "-A", "--kubeconfig", file, "--as", "carl", "--as-group", "devs", "--as-group", "on call", "--request-timeout", "30s")
	for _, want := range []string{"--as carl", "--as-group devs --as-group 'on call'", "--request-timeout 30s"} {
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("no printed command has %s:\n%s%s", want, stdout, stderr)
		}
	}
}

// TestRequestTimeout checks that a command ends if a cluster accepts connections and never answers, and that a value that is no time
// is a mistake in the command.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts connections, but no program answers
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, []byte(kubeconfigText("http://"+silent.Addr().String())), 0o600))
	for _, command := range []string{"status", "explain pod/web", "diff --without x", "rollout -A --dry-run", "rollout history x", "certs"} {
		args := append(strings.Fields(command), "--kubeconfig", file)
		stdout, stderr, code := runWords(append(args, "--request-timeout", "100ms")...)
		if code == 0 || !strings.Contains(stdout+stderr, "does not answer") {
			t.Errorf("%s: %d\n%s%s", command, code, stdout, stderr)
		}
		_, stderr, code = runWords(append(args, "--request-timeout", "soon")...)
		if code != 2 || !strings.Contains(stderr, `--request-timeout: "soon" is not a time, such as 5s`) {
			t.Errorf("%s: %d\n%s", command, code, stderr)
		}
	}
}

// runWords runs a command and returns what it prints.
func runWords(args ...string) (stdout, stderr string, code int) {
	var out, problems strings.Builder
	code = run(args, strings.NewReader(""), &out, &problems)
	return out.String(), problems.String(), code
}
