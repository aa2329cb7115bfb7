// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// goldenHeader is the first line of a golden file. A file without it is not read and not overwritten, because a suite of another author
// could name any file.
const goldenHeader = "# An injected pod, written by pillion test --update.\n"

// goldenFile is the golden file of a case. It is below the folder of the suite, and no symbolic link leads to it.
type goldenFile struct {
	root *os.Root
	name string // with slashes, relative to the folder
}

// openGolden returns a golden file of a suite in a folder. It may not exist. The caller closes it.
func openGolden(folder, name string) (*goldenFile, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	g := &goldenFile{root, path.Clean(filepath.ToSlash(name))}
	for part, rest := "", g.name; rest != ""; {
		var next string
		next, rest, _ = strings.Cut(rest, "/")
		part = path.Join(part, next)
		info, err := root.Lstat(filepath.FromSlash(part))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return g, nil
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			err = fmt.Errorf("%s is a symbolic link, and a golden file must be a file below the folder of the test file", part)
		case err == nil && rest == "" && !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a file", part)
		}
		if err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return g, nil
}

// readPod returns the pod, or nil if there is no file.
func (g *goldenFile) readPod() ([]byte, error) {
	text, err := g.root.ReadFile(filepath.FromSlash(g.name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pod, ok := bytes.CutPrefix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte(goldenHeader))
	if !ok {
		return nil, fmt.Errorf("%s is not a golden file, because its first line is not %q; name another file, or delete this one", g.name, strings.TrimSpace(goldenHeader))
	}
	return pod, nil
}

// writePod writes the pod.
func (g *goldenFile) writePod(pod string) error {
	name := filepath.FromSlash(g.name)
	if err := g.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return g.root.WriteFile(name, []byte(goldenHeader+pod), 0o644)
}
