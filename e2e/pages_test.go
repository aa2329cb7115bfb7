// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// command is one command of a page, with the output that the page shows.
type command struct {
	page  string // its path, if TestPages reads it
	line  string
	shown []string // nil: the page shows none
}

// runElsewhere has the pages whose commands other tests run on their own clusters: all commands, or those of blocks
// that contain a string.
func runElsewhere() map[string][]string {
	return map[string][]string{
		"README.md":                           {"$"},                                 // TestReadme
		"manifests/docs/configure.md":         {"components/hpa,d", "OUTDATED"},      // TestComponentsRemoved, TestController
		"manifests/docs/first-steps.md":       {"$"},                                 // TestFirstSteps
		"manifests/docs/helm.md":              {"$"},                                 // TestChart
		"manifests/docs/install.md":           {"$"},                                 // TestDocumentedOperations
		"manifests/docs/gitops.md":            {"condition=Ready"},                   // TestReadme, which has the controller
		"manifests/docs/rollout.md":           {"rollout history"},                   // TestRolloutHistory
		"manifests/docs/automatic-rollout.md": {"Degraded"},                          // TestRolloutController
		"manifests/docs/from-linkerd.md":      {"trust-roots -o"},                    // TestMoveFromLinkerd
		"manifests/docs/from-aws.md":          {"skip-pod-identity"},                 // TestMoveFromAWS
		"manifests/docs/playground.md":        {"$"},                                 // the module e2e/playground; TestPlaygroundPage in cmd/pillion
		"manifests/docs/certificates.md":      {"secret pillion-ca", "ca=$(kubectl"}, // TestCertManager
		"e2e/README.md":                       {"make node", "make setup-browser"},   // these need root, and take minutes
		"manifests/docs/verify.md":            {"$"},                                 // the module e2e/release, except what needs a published release
	}
}

// TestPages runs every command of every page, in order, and compares the output with the page. With -update, it writes
// outputs that differ into the page.
func TestPages(t *testing.T) {
	t.Parallel()
	i := (&installed{Cluster: newCluster(t)}).install(t, "self-signed")
	i.nodes(t, i.namespace)
	i.waitForInjection(t)
	u := i.newUser(t)
	eventually(t, "advice comes", u.warned)
	n := 0
	for _, page := range pages(t) {
		without := runElsewhere()[page]
		if kubernetesMinor(t) < 36 {
			without = append(without, "--as mutating")
		}
		commands := commandsOf(t, page, without...)
		n += len(commands)
		if len(commands) > 0 {
			t.Run(page, func(t *testing.T) {
				i.newOperator(t).follows(t, commands, nil)
				i.reset(t)
			})
		}
	}
	t.Run("inline", i.inline)
	if n < 30 {
		t.Errorf("only %d commands are found", n)
	}
}

// inline runs commands within sentences and tables, with a workload for NAME and a namespace for NAMESPACE.
func (i *installed) inline(t *testing.T) {
	u := i.newUser(t)
	u.follow(t, command{line: "kubectl apply -f web.yaml && kubectl run web -n shop --image=registry.example/web:1 && kubectl create serviceaccount web -n shop"})
	values := strings.NewReplacer("NAMESPACE", i.namespace, "NAME", "web")
	n := 0
	for _, path := range []string{"inject/README.md", "manifests/docs/certificates.md"} {
		for _, m := range regexp.MustCompile("`(kubectl (?:get|label|-n pillion-system) [^`]+)`").FindAllStringSubmatch(page(t, path), -1) {
			u.follow(t, command{line: values.Replace(m[1])})
			n++
		}
	}
	if n < 14 {
		t.Errorf("only %d commands are found", n)
	}
}

// reset removes what a page's commands left in the cluster.
func (i *installed) reset(t *testing.T) {
	t.Helper()
	policies := "validatingadmissionpolicies,validatingadmissionpolicybindings"
	if kubernetesMinor(t) >= 36 {
		policies += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	}
	for _, args := range [][]string{
		{"delete", "deployments,pods,sidecartemplates", "--all", "-n", i.namespace},
		{"delete", "clustersidecartemplates", "--all"},
		{"delete", policies, "-l", "app.kubernetes.io/managed-by=pillion-policy"},
		{"label", "namespace", i.namespace, injectLabel + "=enabled", "--overwrite"},
		{"delete", "clusterrolebinding", "pillion-viewers", "developers-see-templates", "template-editors", "--ignore-not-found"}, // what users may read
		{"delete", "rolebinding", "developers", "-n", i.namespace, "--ignore-not-found"},
	} {
		if _, err := i.RunKubectl(testContext(t), nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	i.apply(t, "self-signed")
	i.waitForServed(t)
}

// TestReadme follows the README on a new cluster, and then the commands among the usual causes of its page.
func TestReadme(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	if _, err := i.StartCertManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	u := i.newOperator(t)
	u.downloads(t)
	u.follows(t, commandsOf(t, "README.md"), map[string]func(){
		"kubectl label namespace shop": func() {
			u.nodes(t, pillionNamespace)
			u.nodes(t, i.namespace)
			u.installed.run(t)
			(&controlled{i.Cluster}).start(t)
		},
	})
	inline := regexp.MustCompile("`((?:kubectl|pillion) [^`]+ [^`]+)`")
	u.follow(t, command{line: "kubectl apply -n shop -f examples/web.yaml"})
	_, causes, _ := strings.Cut(page(t, "manifests/docs/finding-the-cause.md"), "## Usual causes")
	causes, _, _ = strings.Cut(causes, "\n## ")
	commands := inline.FindAllStringSubmatch(causes, -1)
	if len(commands) < 4 {
		t.Errorf("the page has %d commands for usual causes", len(commands))
	}
	for _, m := range commands {
		u.follow(t, command{line: m[1]})
	}
}

// follows runs commands. What is for the beginning of a command runs before it.
func (u *user) follows(t *testing.T, commands []command, before map[string]func()) {
	t.Helper()
	for _, c := range commands {
		for words, f := range before {
			if strings.HasPrefix(c.line, words) {
				f()
			}
		}
		u.follow(t, c)
	}
}

// follow runs a command. It may exit with 1 if it is one that reports findings so.
func (u *user) follow(t *testing.T, c command) {
	t.Helper()
	before, _ := u.templateRevisions(testContext(t)) // not if a replica is starting
	out, code, err := u.run(testContext(t), "set -o pipefail\n"+c.line)
	reports := regexp.MustCompile(`\bpillion (audit|certs|diff|explain|import|inject|lint|rollout|status|test|uninject)\b`)
	if err != nil || code != 0 && (code != 1 || !reports.MatchString(c.line)) {
		t.Fatalf("%s: exit code %d, %v\n%s", c.line, code, err, out)
	}
	err = c.compare(out)
	switch {
	case err != nil && *update && c.page != "":
		c.recordOutput(t, out)
	case err != nil:
		t.Errorf("%s: %v; it prints\n%s", c.line, err, out)
	}
	if changesTemplates.MatchString(out) {
		u.waitForTemplates(t, before)
	}
}

// changesTemplates finds output of kubectl after which other templates are in use.
var changesTemplates = regexp.MustCompile(`sidecartemplate\S* "?\S*"? ?(created|deleted)`)

// waitForTemplates returns when all replicas use other templates than before, or after some seconds. A reader takes as long from one
// command to the next, and the next one may create a pod.
func (i *installed) waitForTemplates(t *testing.T, before []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_ = cluster.Poll(ctx, func() error {
		now, err := i.templateRevisions(ctx)
		for k := range now {
			if k < len(before) && now[k] == before[k] {
				err = fmt.Errorf("replica %d still has %s", k, now[k])
			}
		}
		return err
	})
}

// recordOutput writes the output of the command into its page, with -update. Shorten a long one with "...", but not all of it.
func (c command) recordOutput(t *testing.T, out string) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path, block := filepath.Join(root, c.page), "$ "+c.line+"\n"
	text := strings.Replace(page(t, c.page), block+strings.Join(c.shown, "\n"), block+strings.TrimSuffix(out, "\n"), 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: recorded the output of %s", c.page, c.line)
}

// compare fails unless the page shows the output. A line of three dots stands for any lines, and a revision for any other.
func (c command) compare(out string) error {
	revision := regexp.MustCompile(`\b[0-9a-f]{12}\b`)
	lines := strings.Split(strings.TrimSuffix(revision.ReplaceAllString(out, "REVISION"), "\n"), "\n")
	gap := c.shown == nil
	for _, want := range c.shown {
		want = revision.ReplaceAllString(want, "REVISION")
		if want == "..." {
			gap = true
			continue
		}
		k := slices.Index(lines, want)
		if k < 0 || k > 0 && !gap {
			return fmt.Errorf("the page shows %q", want)
		}
		lines, gap = lines[k+1:], false
	}
	if len(lines) > 0 && !gap {
		return fmt.Errorf("the page does not show %q", lines[0])
	}
	return nil
}

// commandsOf returns the commands of a page's transcripts, without those of blocks that contain one of
// the strings.
func commandsOf(t *testing.T, path string, without ...string) (all []command) {
	t.Helper()
	for _, block := range strings.Split(page(t, path), "\n```console\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		if slices.ContainsFunc(without, func(text string) bool { return strings.Contains(block, text) }) {
			continue
		}
		for _, c := range commandsIn(t, block) {
			c.page = path
			all = append(all, c)
		}
	}
	return all
}

func commandsIn(t *testing.T, block string) (all []command) {
	t.Helper()
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		lines := strings.Split(part, "\n")
		n := 1
		for n < len(lines) && !complete(t, strings.Join(lines[:n], "\n")) {
			n++
		}
		c := command{line: strings.Join(lines[:n], "\n")}
		if n < len(lines) {
			c.shown = lines[n:]
		}
		all = append(all, c)
	}
	return all
}

// complete reports whether a shell would run the command: nothing that it opens is left open.
func complete(t *testing.T, line string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-nc", line).CombinedOutput()
	return err == nil && len(out) == 0 && !strings.HasSuffix(line, `\`)
}

// pages returns the paths of the Markdown files, from the repository's root.
func pages(t *testing.T) (paths []string) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func page(t *testing.T, path string) string {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// clone makes the user's folder look like a clone of the repository. Programs that would build, push or test do not;
// make has to know the target.
func (u *user) clone(root string) error {
	entries, err := os.ReadDir(root)
	for _, entry := range entries {
		if name := entry.Name(); name != "bin" && name != ".git" {
			err = errors.Join(err, os.Symlink(filepath.Join(root, name), filepath.Join(u.dir, name)))
		}
	}
	for program, script := range map[string]string{
		"docker": "", "go": "", "git": "", "make": "exec /usr/bin/make --dry-run -C '" + root + "' \"$@\" >/dev/null",
	} {
		path := filepath.Join(u.dir, "programs", program)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // programs
	}
	return err
}

// TestKustomizations builds every kustomization that a page shows. If a page shows only a part, the
// test adds the overlay that the page's text names.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	u := (&installed{Cluster: env.Cluster}).newOperator(t)
	part := regexp.MustCompile(`(?m)^(resources:( \[|\n-)|(components|configMapGenerator|secretGenerator|patches):)`) // not a container's resources
	n := 0
	for _, path := range pages(t) {
		for _, block := range strings.Split(page(t, path), "\n```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "\n```")
			if !part.MatchString(block) {
				continue
			}
			n++
			files := map[string]string{
				"kustomization.yaml": block, "log-agent.yaml": page(t, "examples/templates/log-agent.yaml"), "tokens": "t",
				"aws-irsa.yaml": page(t, "templates/library/cloud/aws-irsa.yaml"),
			}
			if !regexp.MustCompile(`(?m)^resources:`).MatchString(block) {
				files["kustomization.yaml"] += "\nresources: [../manifests/overlays/self-signed]\n"
			}
			dir := filepath.Join(u.dir, fmt.Sprintf("kustomization-%d", n))
			err := os.Mkdir(dir, 0o700)
			for name, text := range files {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			if out, code, err := u.run(testContext(t), "kubectl kustomize "+dir); err != nil || code != 0 {
				t.Errorf("%s: exit code %d, %v: %s\n%s", path, code, err, out, block)
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d kustomizations are found", n)
	}
}
