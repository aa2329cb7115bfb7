// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/pillion-dev/pillion/templates"
)

// TemplateNames returns the names of the templates in a set.
func TemplateNames(set *templates.Set) (names []string) {
	for _, t := range set.Templates {
		names = append(names, t.Name)
	}
	return names
}

// LoadTemplates loads files and folders. It checks every time which path is which, because
// that may change.
func LoadTemplates(paths []string) (*templates.Set, error) {
	return LoadWith(new(templates.Loader), paths)
}

// LoadWith is [LoadTemplates] for callers that load repeatedly.
func LoadWith(loader *templates.Loader, paths []string) (*templates.Set, error) {
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
		return set, ErrNoTemplates
	}
	return set, err
}

// ErrNoTemplates comes with an empty set. A cluster may have no templates for a while, but
// users who name files on the command line expect some.
var ErrNoTemplates = errors.New("the files and folders contain no *.yaml, *.yml or *.json with a template (subfolders are not searched)")
