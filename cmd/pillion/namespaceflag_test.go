// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// allCommands calls visit for a command and all below it.
func allCommands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		allCommands(sub, visit)
	}
}

// impliedNote is the sentence about a namespace that the user did not name.
var impliedNote = regexp.MustCompile(`(?s)\n*(pillion|Note): +This is about the namespace.*?--all-namespaces\.\n`)

// TestNamespaceFlag checks that a missing --namespace means the same in all commands: the namespace of the kubeconfig's context.
// A command without the flag prints the same, and sends the same requests, as with that namespace. --all-namespaces
// widens a command that has this flag. A command that is not in the table must not have --namespace.
func TestNamespaceFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	write(t, web, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web, image: \"web:1\"}]}}}\n")
	templates := filepath.Join(dir, "t")
	must(t, os.Mkdir(templates, 0o700))
	write(t, filepath.Join(templates, "agent.yaml"), agentTemplate)
	commands := map[string]string{
		"check":    "",
		"diff":     "--without agent|--without agent -A|-f WEB -t T --with T -o json",
		"explain":  "|deploy/web|deploy|-A|-f WEB -t T",
		"inject":   "-f WEB -t T|-f WEB -t T -o patch",
		"lint":     "T --pod WEB|T --server",
		"rollout":  "--dry-run|deployment/web --dry-run|--selector app=web --dry-run|-A --dry-run",
		"status":   "|-A|-o json|-l app=web",
		"uninject": "-f WEB -t T",
	}
	allCommands(newRoot(), func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "pillion ")
		_, listed := commands[name]
		f := c.Flags().Lookup("namespace")
		if (f != nil) != listed {
			t.Errorf("%s: --namespace is %v, and the command is in the table: %v", name, f, listed)
		}
		if f == nil {
			if c.Flags().ShorthandLookup("n") != nil || c.Flags().Lookup("all-namespaces") != nil {
				t.Errorf("%s: there is -n or --all-namespaces without --namespace", name)
			}
			return
		}
		if !strings.HasSuffix(f.Usage, "(default: the kubeconfig's, or default)") || f.Shorthand != "n" {
			t.Errorf("%s: -%s, --namespace: %s", name, f.Shorthand, f.Usage)
		}
	})
	answer := func(namespace string, args []string) (string, map[string]int) {
		a := explainAPI(t)
		a.namespace = namespace
		file := a.kubeconfig(t)
		stdout, stderr, code := runWords(append(args, "--kubeconfig", file)...)
		a.mu.Lock()
		defer a.mu.Unlock()
		out := strings.ReplaceAll(impliedNote.ReplaceAllString(stdout, "\n")+"\n--- "+impliedNote.ReplaceAllString(stderr, ""), file, "FILE")
		return fmt.Sprintf("%d: %s", code, strings.TrimSpace(out)), maps.Clone(a.asked)
	}
	words := strings.NewReplacer("WEB", web, "T", templates)
	for name, each := range commands {
		for line := range strings.SplitSeq(each, "|") {
			args := append(strings.Fields(name), strings.Fields(words.Replace(line))...)
			implied, asked := answer("shop", args)
			named, alike := answer("", append(args, "-n", "shop"))
			if strings.Contains(line, "-o json") {
				implied, named = withoutNotes(implied), withoutNotes(named)
			}
			if implied != named || !maps.Equal(asked, alike) {
				t.Errorf("%s %s: without --namespace\n%s\n%v\nand with it\n%s\n%v", name, line, implied, asked, named, alike)
			}
			other, elsewhere := answer("quiet", args)
			if wide := strings.Contains(line, "-A"); (other == implied && maps.Equal(elsewhere, asked)) != wide && name != "check" && name != "inject" && name != "uninject" && !strings.Contains(line, "WEB") {
				t.Errorf("%s %s: the namespace quiet makes no difference: %v\n%s", name, line, !wide, other)
			}
		}
	}
}

// withoutNotes removes the field notes of a report.
func withoutNotes(text string) string {
	return strings.ReplaceAll(regexp.MustCompile(`(?s),?\s*"notes": \[.*?\]`).ReplaceAllString(text, ""), "\n\n", "\n")
}

// TestShorthands checks that a flag of one letter is short for the same flag in all commands. For example, -v is --verbose, and
// never --version.
func TestShorthands(t *testing.T) {
	t.Parallel()
	long, first := map[string]string{}, map[string]string{}
	allCommands(newRoot(), func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Shorthand == "" {
				return
			}
			if name, ok := long[f.Shorthand]; ok && name != f.Name {
				t.Errorf("-%s is --%s of %s, and --%s of %s", f.Shorthand, f.Name, c.CommandPath(), name, first[f.Shorthand])
			}
			long[f.Shorthand], first[f.Shorthand] = f.Name, c.CommandPath()
		})
	})
	if long["v"] != "verbose" || len(long) < 8 {
		t.Errorf("the flags are %v", long)
	}
}
