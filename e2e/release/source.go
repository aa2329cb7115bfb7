// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// source is a clone of the commit that is released.
type source struct {
	root     string
	work     string // for files that are no part of the release
	revision string
	time     time.Time // of the commit, and so of everything that has a time
	tagged   bool      // the repository has the tag already
}

// checkOut clones a repository's HEAD and tags the clone. So a release contains what is committed
// and nothing else, and Go itself writes the version into the binaries.
func checkOut(ctx context.Context, repository, version, work string) (source, error) {
	s := source{root: filepath.Join(work, "pillion"), work: work}
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return s, fmt.Errorf("%q is no version; write one as v0.1.0", version)
	}
	repository, err := filepath.Abs(repository)
	if err != nil {
		return s, err
	}
	if _, err := run(ctx, work, "git", "clone", "--quiet", "--shared", repository, s.root); err != nil {
		return s, err
	}
	shown, err := run(ctx, s.root, "git", "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return s, err
	}
	revision, seconds, _ := strings.Cut(shown, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, err
	}
	s.revision, s.time = revision, time.Unix(unix, 0).UTC()
	tags, err := run(ctx, s.root, "git", "tag", "--list", version)
	if err != nil {
		return s, err
	}
	if s.tagged = tags != ""; !s.tagged {
		_, err = run(ctx, s.root, "git", "tag", version)
		return s, err
	}
	commit, err := run(ctx, s.root, "git", "rev-parse", version+"^{commit}")
	if err == nil && commit != revision {
		err = fmt.Errorf("the tag %s is on commit %s and HEAD is %s; check out the tag", version, commit, revision)
	}
	return s, err
}

// run returns what a command prints, without the final line break.
func run(ctx context.Context, dir string, command ...string) (string, error) {
	return runWith(ctx, nil, dir, command...)
}

func runWith(ctx context.Context, env []string, dir string, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, &problems)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
