// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Recipe is what the Dockerfile says about the image.
type Recipe struct {
	// Build is the command that builds the program, for example "CGO_ENABLED=0 go build -o /pillion ./cmd/pillion".
	Build string
	// User is the user and the group of the image, for example "65532:65532".
	User string
	// Program is the path of the program in the image. It is the only file.
	Program string
}

var (
	buildPattern = regexp.MustCompile(`CGO_ENABLED=0 .*go build .*`)
	imagePattern = regexp.MustCompile(`(?s)\nFROM scratch\nCOPY --from=build (\S+) (\S+)\nUSER (\S+)\nENTRYPOINT \["([^"]+)"\]\n$`)
)

// ReadRecipe reads the Dockerfile in the root of the checkout. It returns an error if the Dockerfile has other steps than
// go build and one COPY into an empty image.
func ReadRecipe(root string) (Recipe, error) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return Recipe{}, err
	}
	command := buildPattern.FindString(string(text))
	parts := imagePattern.FindStringSubmatch(string(text))
	if command == "" || parts == nil || parts[1] != parts[2] || parts[2] != parts[4] {
		return Recipe{}, fmt.Errorf("%s/Dockerfile has other steps than go build and one COPY into an empty image", root)
	}
	return Recipe{Build: command, User: parts[3], Program: parts[4]}, nil
}

// Pillion returns the path of this checkout's pillion, built with the Dockerfile's own command, so that tests run what
// ships. It is built once for the same files, and kept in the cache. A later version control revision with the same files
// has the same program, so its version may be that of an earlier commit. Remove nothing from the folder, and link or copy
// the program if you need it for longer than a day: see [removeOldPillions].
func Pillion(ctx context.Context, steps *Steps) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	recipe, err := ReadRecipe(root)
	if err != nil {
		return "", err
	}
	sum, err := pillionSum(ctx, root, recipe.Build)
	if err != nil {
		return "", err
	}
	dir, err := once(ctx, steps, pillionPrefix+sum, "building pillion with the flags of the image", func(dir string, _ *Progress) error {
		command := strings.Replace(recipe.Build, "-o "+recipe.Program, "-o "+filepath.Join(dir, "pillion"), 1)
		return runShell(ctx, root, command)
	})
	if err != nil {
		return "", err
	}
	now := time.Now()
	err = os.Chtimes(dir, now, now)
	return filepath.Join(dir, "pillion"), errors.Join(err, removeOldPillions(filepath.Dir(dir), now))
}

const (
	pillionPrefix = "pillion-"
	// keepPillion is far longer than a run of the tests.
	keepPillion = 24 * time.Hour
)

// removeOldPillions removes the programs that were last used more than a day ago. Each change of the code makes another
// one, of 45 MB.
func removeOldPillions(cache string, now time.Time) error {
	dirs, err := filepath.Glob(filepath.Join(cache, pillionPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && now.Sub(info.ModTime()) > keepPillion {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// LinkProgram makes a hard link of a program, or a copy if the file systems differ.
func LinkProgram(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	program, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o755) //nolint:gosec // a program
}

// runShell runs a line of a Dockerfile for this machine's architecture.
func runShell(ctx context.Context, dir, line string) error {
	_, err := runCommand(ctx, dir, []string{"TARGETOS=linux", "TARGETARCH=" + runtime.GOARCH}, "sh", "-c", line)
	return err
}

// pillionSum returns a hash of everything that the program is made of: the command, the version of Go, and the files of
// the root module without its tests.
func pillionSum(ctx context.Context, root, command string) (string, error) {
	version, err := runCommand(ctx, root, nil, "go", "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %s", command, version, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum", "cmd", "certs", "inject", "manifests", "templates"} {
		err := filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules"):
				return fs.SkipDir
			case !d.Type().IsRegular() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(root, path)
			fmt.Fprintf(hash, "%s %d\n%s", relative, len(text), text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}
