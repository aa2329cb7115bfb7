// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestPinned checks that everything that workflows, the Dockerfile, the Makefile and scripts pull or run has an exact
// version: images by digest, actions by commit, modules and packages by version. So a build of the same commit runs the same
// programs, and a tag that is moved changes nothing.
//
// Packages of Debian and Ubuntu are exempt: apt verifies the signature of the distribution, which keeps no earlier versions.
func TestPinned(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == ".git" || name == "node_modules" || name == "testdata" || path == "../bin" || path == "../dist" {
				return filepath.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || entry.Type()&fs.ModeSymlink != 0 {
			return nil // the chart's links
		}
		if err != nil {
			return err
		}
		kind := kindOf(path, text)
		kinds[kind]++
		for _, problem := range unpinned(kind, string(text)) {
			t.Errorf("%s:%s", path, problem)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"workflow", "Dockerfile", "script", "page"} {
		if kinds[kind] == 0 {
			t.Errorf("there is no %s", kind)
		}
	}
}

// TestPinnedGo checks that the image, the releases and the page about them use the same version of Go.
func TestPinnedGo(t *testing.T) {
	t.Parallel()
	image := regexp.MustCompile(`golang:([0-9.]+)@`).FindStringSubmatch(contents(t, "../Dockerfile"))
	if image == nil {
		t.Fatal("the Dockerfile has no version of Go")
	}
	for path, want := range map[string]string{
		"../.github/workflows/release.yml": `go-version: "` + image[1] + `"`, "docs/verify.md": "GOTOOLCHAIN=go" + image[1] + " make release",
	} {
		if !strings.Contains(contents(t, path), want) {
			t.Errorf("%s does not contain %s, as the Dockerfile", path, want)
		}
	}
}

// kindOf returns how a file is read, or "" if nothing runs it.
func kindOf(path string, text []byte) string {
	name := filepath.Base(path)
	first, _, _ := bytes.Cut(text, []byte("\n"))
	switch {
	case strings.Contains(filepath.ToSlash(path), "/.github/") && (filepath.Ext(name) == ".yml" || filepath.Ext(name) == ".yaml"):
		return "workflow"
	case strings.Contains(name, "Dockerfile") || strings.Contains(name, "Containerfile"):
		return "Dockerfile"
	case name == "Makefile", filepath.Ext(name) == ".mk", filepath.Ext(name) == ".sh", bytes.HasPrefix(first, []byte("#!")) && bytes.HasSuffix(first, []byte("sh")):
		return "script"
	case filepath.Ext(name) == ".md":
		return "page"
	}
	return ""
}

// unpinned returns what of a file has no exact version, each as "LINE: PROBLEM".
func unpinned(kind, text string) (problems []string) {
	switch kind {
	case "workflow":
		return unpinnedInWorkflow(text)
	case "Dockerfile":
		return unpinnedInDockerfile(text)
	case "script":
		return unpinnedCommands(1, text)
	case "page":
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "@latest") {
				problems = append(problems, fmt.Sprintf("%d: @latest is no version: %s", i+1, strings.TrimSpace(line)))
			}
		}
	}
	return problems
}

const (
	commit  = `[0-9a-f]{40}`
	digest  = `@sha256:[0-9a-f]{64}`
	version = `v?\d+\.\d+\.\d+[-+.0-9A-Za-z]*`
)

var (
	pinnedImage  = regexp.MustCompile(`^\S+` + digest + `$`)
	pinnedAction = regexp.MustCompile(`^(\./\S*|[\w.-]+/[\w./-]+@` + commit + `|docker://\S+` + digest + `)$`)
	pinnedTool   = regexp.MustCompile(`^` + version + `$`)
	fromLine     = regexp.MustCompile(`(?i)^\s*FROM\s+((?:--\S+\s+)*)(\S+)(?:\s+AS\s+(\S+))?\s*$`)
	fromOption   = regexp.MustCompile(`(?i)\b(?:--from=|from=)([^\s,]+)`)
	syntaxLine   = regexp.MustCompile(`(?i)^#\s*syntax\s*=\s*(\S+)`)
)

// unpinnedInDockerfile returns the images of a Dockerfile without a digest. The empty image needs none, and a stage is no image.
func unpinnedInDockerfile(text string) (problems []string) {
	stages := map[string]bool{"scratch": true}
	for number, line := range joinedLines(1, text) {
		say := func(image string) {
			problems = append(problems, fmt.Sprintf("%d: the image %s has no digest", number, image))
		}
		from := fromLine.FindStringSubmatch(line)
		switch syntax := syntaxLine.FindStringSubmatch(line); {
		case syntax != nil && !pinnedImage.MatchString(syntax[1]):
			say(syntax[1])
		case from != nil:
			if !stages[strings.ToLower(from[2])] && !pinnedImage.MatchString(from[2]) {
				say(from[2])
			}
			if from[3] != "" {
				stages[strings.ToLower(from[3])] = true
			}
		case strings.HasPrefix(strings.ToUpper(strings.TrimSpace(line)), "FROM"):
			say(strings.TrimSpace(line))
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			for _, option := range fromOption.FindAllStringSubmatch(line, -1) {
				if !stages[strings.ToLower(option[1])] && !pinnedImage.MatchString(option[1]) {
					say(option[1])
				}
			}
			problems = append(problems, unpinnedCommands(number, line)...)
		}
	}
	return problems
}

// unpinnedInWorkflow reads the YAML, so that it does not matter how a workflow is written.
func unpinnedInWorkflow(text string) (problems []string) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return problems
		}
		if err != nil {
			return append(problems, fmt.Sprintf("1: %v", err))
		}
		problems = append(problems, unpinnedInNode("", &document)...)
	}
}

// unpinnedInNode checks a value, and all within it. Key is the key of the value.
func unpinnedInNode(key string, n *yaml.Node) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%d: ", n.Line)+fmt.Sprintf(format, args...))
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			problems = append(problems, unpinnedInNode(n.Content[i].Value, n.Content[i+1])...)
		}
		return problems
	case yaml.ScalarNode:
	default: // the content of an alias is where its anchor is
		for _, item := range n.Content {
			problems = append(problems, unpinnedInNode(key, item)...)
		}
		return problems
	}
	switch value := n.Value; {
	case key == "uses" && !pinnedAction.MatchString(value):
		say("the action %s has no commit", value)
	case (key == "image" || key == "container") && !pinnedImage.MatchString(strings.TrimPrefix(value, "docker://")):
		say("the image %s has no digest", value)
	case key == "runs-on" && strings.HasSuffix(value, "-latest"):
		say("the runner %s has no version", value)
	case key == "check-latest" && value != "false":
		say("check-latest ignores the version")
	case (key == "version" || strings.HasSuffix(key, "-version")) && !pinnedTool.MatchString(value):
		say("the %s %s is not exact", key, value)
	default:
		first := n.Line
		if n.Style == yaml.LiteralStyle || n.Style == yaml.FoldedStyle {
			first++
		}
		problems = append(problems, unpinnedCommands(first, value)...)
	}
	return problems
}

// command finds commands that pull something, and which of them are fine.
type command struct {
	what string
	is   *regexp.Regexp
	fine *regexp.Regexp // of what follows the command
}

// commands are of those of a shell. What ends the regular expression is followed by the arguments.
func commands() []command {
	of := func(what, is, fine string) command {
		return command{what, regexp.MustCompile(`(?:^|[\s;&|(=@"'` + "`" + `])` + is), regexp.MustCompile(fine)}
	}
	const never, words = `^\b$`, `\s*(?:-\S+\s+)*`
	return []command{
		of("a download without a checksum, or a script that is run at once", `(?:curl|wget)\s`, never),
		of("packages of Python without versions", `(?:pip3?|python3? -m pip|uv pip) install\s`, `^\s*(?:-\S+\s+)*(?:[\w.\[\]-]+==[\w.]+\s*)+$|--require-hashes`),
		of("a program of Python without a version", `(?:pipx (?:install|run)|uvx|uv tool (?:install|run))\s`, `^`+words+`[\w.-]+(?:==|@)`+version),
		of("packages of Node.js without versions", `(?:npm (?:install|i|add)|yarn (?:add|install|global)|pnpm (?:add|install|i|dlx))\b`, `^`+words+`(?:(?:@[\w-]+/)?[\w.-]+@`+version+`\s*)+$`),
		of("a program of Node.js without a version", `(?:npx|npm exec|yarn dlx|bunx)\s`, `^`+words+`(?:@[\w-]+/)?[\w.-]+@`+version),
		of("a gem without a version", `gem install\s`, `(?:-v|--version)[ =]\S+`),
		of("a crate without a version", `cargo install\s`, `--version[ =]\S+|--path`),
		of("an image without a digest", `(?:docker|podman|nerdctl|ctr|crane)\s+(?:run|pull|create|images? pull)\s`, digest),
		of("a chart without a version", `helm\s+(?:install|upgrade|pull|template)\b.*(?:oci://|https?://|--repo)`, `--version[ =]\S+`),
		of("manifests of others without a commit", `kubectl\s+(?:apply|create|replace)\b.*https?://`, never),
		of("a clone of another repository", `git clone\b.*(?:https?://|git@)`, never),
		of("an extension without a commit", `gh extension install\s`, `--pin[ =]`+commit),
		of("a module without a version", `(?:go|\$\(GO\)|\$\{GO\}) (?:run|install|get)\b(?:\s+-\S+(?:\s+[^-\s]\S*)??)*\s+(?:[\w-]+\.)+[a-z]+/[^\s@]+`, `^@(?:`+version+`|`+commit+`)(?:\s|$|["'`+"`"+`)])`),
	}
}

// atLatest is what names no version in any language.
var atLatest = regexp.MustCompile(`[\w/.-]+@(?:latest|main|master|HEAD|head|next)\b`)

// joinedLines returns the lines of a string with their numbers, from that of the first one. A line that ends with a backslash
// goes on in the next one.
func joinedLines(first int, text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		lines := strings.Split(text, "\n")
		for i := 0; i < len(lines); i++ {
			number, line := first+i, lines[i]
			for strings.HasSuffix(line, "\\") && i+1 < len(lines) {
				i++
				line = strings.TrimSuffix(line, "\\") + " " + lines[i]
			}
			if !yield(number, line) {
				return
			}
		}
	}
}

// unpinnedCommands checks the lines of a script.
func unpinnedCommands(first int, text string) (problems []string) {
	for number, line := range joinedLines(first, text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if found := atLatest.FindString(line); found != "" {
			problems = append(problems, fmt.Sprintf("%d: %s is no version", number, found))
		}
		for _, c := range commands() {
			for _, at := range c.is.FindAllStringIndex(line, -1) {
				// Another command may follow.
				rest := regexp.MustCompile(`&&|\|\||[;|]`).Split(line[at[1]:], 2)[0]
				if !c.fine.MatchString(rest) && !c.fine.MatchString(line[at[0]:at[1]]+rest) {
					problems = append(problems, fmt.Sprintf("%d: %s: %s", number, c.what, strings.TrimSpace(line)))
				}
			}
		}
	}
	return problems
}

// TestUnpinned checks that each kind of thing without an exact version is found, with its line, and that what has one is not.
func TestUnpinned(t *testing.T) {
	t.Parallel()
	sum, sha := "@sha256:"+strings.Repeat("0a", 32), strings.Repeat("0a", 20)
	step := func(text string) string { return "jobs:\n  a:\n    steps:\n    - " + text + "\n" }
	for _, c := range []struct {
		kind, text string
		line       int // 0: nothing is found
	}{
		{"Dockerfile", "FROM golang:1.26\n", 1},
		{"Dockerfile", "# A comment.\nFROM --platform=$BUILDPLATFORM golang:1.26.8 AS build\n", 2},
		{"Dockerfile", "from golang\n", 1},
		{"Dockerfile", "FROM golang@sha256:0a\n", 1},
		{"Dockerfile", "ARG BASE=golang" + sum + "\nFROM ${BASE}\n", 2}, // an argument can change it
		{"Dockerfile", "FROM golang" + sum + " AS build\nFROM other\n", 2},
		{"Dockerfile", "FROM \\\n  golang:1.26\n", 1},
		{"Dockerfile", "RUN a \\\n  b\nFROM golang:1.26\n", 3},
		{"Dockerfile", "FROM scratch\nCOPY --from=busybox:1 /bin/sh /bin/sh\n", 2},
		{"Dockerfile", "FROM scratch\nRUN --mount=type=bind,from=busybox,target=/x true\n", 2},
		{"Dockerfile", "# syntax=docker/dockerfile:1\nFROM scratch\n", 1},
		{"Dockerfile", "FROM scratch\nRUN curl -sSf https://example.com/install.sh | sh\n", 2},
		{"Dockerfile", "FROM scratch\nRUN go install example.com/tool@latest\n", 2},
		{"Dockerfile", "# syntax=docker/dockerfile:1" + sum + "\nFROM --platform=$BUILDPLATFORM golang:1.26.8" + sum + " AS build\nRUN go build ./...\nFROM scratch\nCOPY --from=build /a /a\n", 0},

		{"workflow", step("uses: actions/checkout@v5"), 4},
		{"workflow", step("uses: actions/checkout@main"), 4},
		{"workflow", step("uses: actions/checkout"), 4},
		{"workflow", step("uses: actions/checkout@" + sha[:39]), 4},
		{"workflow", step(`{name: x, "uses": "actions/checkout@v5.0.0"}`), 4},
		{"workflow", step("name: x\n      uses: >-\n        actions/checkout@v5"), 5},
		{"workflow", step("uses: docker://alpine:3"), 4},
		{"workflow", "jobs:\n  a:\n    uses: other/repository/.github/workflows/a.yml@v1\n", 3},
		{"workflow", step("uses: actions/checkout@" + sha + " # v5.0.0"), 0},
		{"workflow", step("uses: ./.github/actions/a"), 0},
		{"workflow", step("uses: docker://alpine:3" + sum), 0},
		{"workflow", "jobs:\n  a:\n    container: golang:1.26\n", 3},
		{"workflow", "jobs:\n  a:\n    container:\n      image: golang:1.26\n", 4},
		{"workflow", "jobs:\n  a:\n    services:\n      db:\n        image: postgres:18\n", 5},
		{"workflow", "jobs:\n  a:\n    services: {db: {image: 'postgres'}}\n", 3},
		{"workflow", "runs: {using: docker, image: 'docker://alpine:3'}\n", 1},
		{"workflow", "jobs:\n  a:\n    services:\n      db:\n        image: postgres:18" + sum + "\n", 0},
		{"workflow", "jobs:\n  a:\n    runs-on: ubuntu-latest\n", 3},
		{"workflow", "jobs:\n  a:\n    runs-on: [self-hosted, ubuntu-latest]\n", 3},
		{"workflow", "jobs:\n  a:\n    runs-on: ubuntu-24.04\n", 0},
		{"workflow", step("with: {go-version: '1.26'}"), 4},
		{"workflow", step("with: {node-version: latest}"), 4},
		{"workflow", step("with: {go-version: '1.26.8', check-latest: true}"), 4},
		{"workflow", step("with: {go-version: '1.26.8', go-version-file: go.mod}"), 0},
		{"workflow", step("run: make test"), 0},
		{"workflow", step("run: |\n        make test\n        go run example.com/a/tool@latest"), 6},
		{"workflow", step("run: go run -C x example.com/a/tool@v1"), 4},
		{"workflow", "env:\n  TOOL: go run example.com/a/tool@main\n", 2},
		{"workflow", "env:\n  TOOL: go run example.com/a/tool@v1.2.3\n", 0},
		{"workflow", step("run: go run example.com/a/tool@" + sha), 0},
		{"workflow", step("run: go install golang.org/x/tools/cmd/stringer"), 4},
		{"workflow", step("run: go run ./cmd/pillion"), 0},
		{"workflow", step("run: |\n        set -e\n        curl https://example.com/x \\\n          | bash"), 6},
		{"workflow", step("run: bash <(curl -s https://example.com/x)"), 4},
		{"workflow", step(`run: sh -c "$(wget -qO- https://example.com/x)"`), 4},
		{"workflow", step("run: pip install requests"), 4},
		{"workflow", step("run: python3 -m pip install requests==2.0.0 other"), 4},
		{"workflow", step("run: pip install 'requests>=2'"), 4},
		{"workflow", step("run: pip install requests==2.0.0"), 0},
		{"workflow", step("run: pip install --require-hashes -r requirements.txt"), 0},
		{"workflow", step("run: pip install -r requirements.txt"), 4},
		{"workflow", step("run: pipx run black"), 4},
		{"workflow", step("run: npm install"), 4},
		{"workflow", step("run: cd x && npm i -g typescript"), 4},
		{"workflow", step("run: npm install typescript@5"), 4},
		{"workflow", step("run: npm install --global typescript@5.9.2"), 0},
		{"workflow", step("run: npm ci --ignore-scripts"), 0},
		{"workflow", step("run: npx prettier"), 4},
		{"workflow", step("run: npx --yes prettier@3.6.2"), 0},
		{"workflow", step("run: docker run --rm alpine:3 true"), 4},
		{"workflow", step("run: docker run --rm alpine" + sum + " true"), 0},
		{"workflow", step("run: helm install x oci://example.com/x"), 4},
		{"workflow", step("run: helm install x oci://example.com/x --version 1.2.3"), 0},
		{"workflow", step("run: kubectl apply -f https://example.com/x.yaml"), 4},
		{"workflow", step("run: git clone https://example.com/x"), 4},
		{"workflow", step("run: gem install x"), 4},
		{"workflow", step("run: cargo install x"), 4},
		{"workflow", step("run: gh extension install x/y"), 4},
		{"workflow", step("run: '# curl is not run'"), 0},
		{"workflow", "a: &x {uses: actions/checkout@v5}\nb: *x\n", 1},
		{"workflow", "a: b\n---\nuses: actions/checkout@v5\n", 3},
		{"workflow", "a: [\n", 1},

		{"script", "#!/bin/sh\n# curl\ncurl -o x https://example.com/x\n", 3},
		{"script", "tool:\n\t@npm install\n", 2},
		{"script", "TOOL = $(GO) run example.com/tool@latest\n", 1},
		{"script", "TOOL = $(GO) run example.com/tool\n", 1},
		{"script", "TOOL = $(GO) run example.com/tool@v1.2.3\n", 0},
		{"script", "install:\n\tapt-get install --yes containerd\n", 0},
		{"page", "Run\n    go run example.com/tool@latest\n", 2},
		{"", "FROM golang\n", 0},
	} {
		found := unpinned(c.kind, c.text)
		if (len(found) > 0) != (c.line > 0) || c.line > 0 && !strings.HasPrefix(found[0], fmt.Sprintf("%d: ", c.line)) {
			t.Errorf("%s\n%s: found %q, want a problem in line %d", c.kind, c.text, found, c.line)
		}
	}
	for path, want := range map[string]string{
		"../.github/workflows/ci.yml": "workflow", "../.github/actions/a/action.yaml": "workflow", "../Dockerfile": "Dockerfile", "../x/Dockerfile.dev": "Dockerfile", "../x/dev.Dockerfile": "Dockerfile",
		"../Makefile": "script", "../x/a.mk": "script", "../a.sh": "script", "../README.md": "page", "../a.go": "",
	} {
		if got := kindOf(path, nil); got != want {
			t.Errorf("%s is a %q, want %q", path, got, want)
		}
	}
	if got := kindOf("../.ci/run", []byte("#!/usr/bin/env bash\n")); got != "script" {
		t.Errorf("a file for bash is a %q", got)
	}
	if slices.Contains([]string{"workflow", "script"}, kindOf("../base/a.yaml", nil)) {
		t.Error("a manifest is run by nothing here")
	}
}
