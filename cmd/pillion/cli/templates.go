// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// TemplateNames returns the names of the templates in a set.
func TemplateNames(set *templates.Set) (names []string) {
	for _, t := range set.Templates {
		names = append(names, t.Name)
	}
	return names
}

// LoadTemplates loads the files and folders that a user named, and standard input for "-". An
// error that is [problem.Problems] says what is wrong in templates. It is another error if a
// path cannot be read.
func LoadTemplates(stdin io.Reader, paths []string) (*templates.Set, error) {
	return loadTemplates(new(templates.Loader), stdin, paths)
}

// LoadPart is like LoadTemplates, for templates that are added to others.
func LoadPart(stdin io.Reader, paths []string) (*templates.Set, error) {
	return loadTemplates(&templates.Loader{Part: true}, stdin, paths)
}

// LoadValid is like LoadTemplates, but it returns the set of those templates that have no problem, and the problems of all
// others. It also returns an error if a path cannot be read, or if there is no template.
func LoadValid(stdin io.Reader, paths []string) (*templates.Set, problem.Problems, error) {
	var unread []error
	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		_, err := os.Stat(path)
		if path == "-" || err == nil {
			return false
		}
		unread = append(unread, err)
		return true
	})
	sources, err := namedSources(stdin, paths)
	if err != nil {
		return templates.NewSet(nil), nil, err
	}
	set, problems := templates.LoadValid(sources...)
	if len(set.Templates)+len(problems)+len(unread) > 0 {
		return set, problems, errors.Join(unread...)
	}
	if slices.Equal(paths, []string{"-"}) {
		return set, nil, errNoInput
	}
	return set, nil, ErrNoTemplates
}

// namedSources returns the files and folders that a user named, and standard input for "-".
func namedSources(stdin io.Reader, paths []string) ([]templates.Source, error) {
	sources := make([]templates.Source, len(paths))
	for i, path := range paths {
		if path == "-" {
			data, err := io.ReadAll(stdin)
			if err != nil {
				return nil, err
			}
			sources[i] = templates.Source{Data: data, Path: "standard input"}
			continue
		}
		sources[i] = templateSource(path)
	}
	return sources, nil
}

func loadTemplates(loader *templates.Loader, stdin io.Reader, paths []string) (*templates.Set, error) {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil && path != "-" {
			return nil, err
		}
	}
	sources, err := namedSources(stdin, paths)
	if err != nil {
		return nil, err
	}
	set, err := loadSources(loader, sources)
	if errors.Is(err, ErrNoTemplates) && slices.Equal(paths, []string{"-"}) {
		return set, errNoInput
	}
	if problems := problem.Problems(nil); errors.As(err, &problems) {
		err = fmt.Errorf("the templates are invalid:\n%w", err)
	}
	return set, err
}

// LoadWith loads files and folders for callers that load repeatedly. It checks every time which
// path is which, because that may change.
func LoadWith(loader *templates.Loader, paths []string) (*templates.Set, error) {
	sources := make([]templates.Source, len(paths))
	for i, path := range paths {
		sources[i] = templateSource(path)
	}
	return loadSources(loader, sources)
}

func templateSource(path string) templates.Source {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return templates.Source{FS: os.DirFS(path), Name: ".", Path: path}
	}
	return templates.Source{FS: os.DirFS(filepath.Dir(path)), Name: filepath.Base(path), Path: path}
}

func loadSources(loader *templates.Loader, sources []templates.Source) (*templates.Set, error) {
	set, err := loader.Load(sources...)
	if err == nil && len(set.Templates) == 0 {
		return set, ErrNoTemplates
	}
	return set, err
}

// errNoInput is ErrNoTemplates of standard input.
var errNoInput = errors.New("the input contains no template")

// ErrNoTemplates comes with an empty set. A cluster may have no templates for a while, but
// users who name files on the command line expect some.
var ErrNoTemplates = errors.New("the files and folders contain no *.yaml, *.yml or *.json with a template (subfolders are not searched)")
