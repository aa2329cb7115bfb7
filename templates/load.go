// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/problem"
)

// Source is a file or a folder of templates.
type Source struct {
	FS   fs.FS
	Name string // in FS; "." is the folder itself
	Data []byte // the content, if FS is nil
	Path string // for messages
}

// Load reads all sources or returns [problem.Problems]. In a folder it reads *.yaml, *.yml and *.json. It
// ignores subfolders, kustomization.yaml, and names that start with a dot, because a mounted
// ConfigMap keeps its versions there.
func Load(sources ...Source) (*Set, error) { return new(Loader).Load(sources...) }

// LoadValid reads all sources. It returns the set of those templates that have no problem, and the problems of the others.
func LoadValid(sources ...Source) (*Set, problem.Problems) {
	files, unread := readSources(sources)
	set, problems := CompileValid(files...)
	return set, append(unread, problems...)
}

// Loader loads templates repeatedly. It does not compile unchanged files again. Its zero value is
// ready to use.
type Loader struct {
	// Part allows that templates replace others that are not among those that are loaded. [Join] checks that later.
	Part bool

	files []File
	set   *Set
	err   error
}

// Load is like the function [Load].
func (l *Loader) Load(sources ...Source) (*Set, error) {
	files, problems := readSources(sources)
	known := l.set != nil || l.err != nil
	if known && len(problems) == 0 && slices.EqualFunc(files, l.files, File.equal) {
		return l.set, l.err
	}
	if l.files, l.set, l.err = files, nil, nil; len(problems) > 0 {
		return l.compileSet(files, problems) // it may be gone the next time
	}
	l.set, l.err = l.compileSet(files, nil)
	return l.set, l.err
}

func readSources(sources []Source) (read []File, problems problem.Problems) {
	seen := map[string]bool{} // a file that is named twice is read once
	for _, s := range sources {
		if s.FS == nil {
			read = append(read, File{s.Path, s.Data})
			continue
		}
		files, err := s.listFiles()
		if err != nil {
			problems = append(problems, problem.Problem{File: s.Path, Message: errorWithoutPath(err)})
		}
		for _, f := range files {
			clean := path.Clean(f.Path)
			if seen[clean] {
				continue
			}
			seen[clean] = true
			data, err := fs.ReadFile(f.FS, f.Name)
			if err != nil {
				problems = append(problems, problem.Problem{File: f.Path, Message: errorWithoutPath(err)})
				continue
			}
			read = append(read, File{f.Path, data})
		}
	}
	return read, problems
}

// File is a file of templates that has been read.
type File struct {
	Path string // for messages
	Data []byte
}

func (f File) equal(other File) bool { return f.Path == other.Path && bytes.Equal(f.Data, other.Data) }

// Compile returns the set of templates in all files, or [problem.Problems].
func Compile(files ...File) (*Set, error) { return new(Loader).compileSet(files, nil) }

// CompileValid returns the set of those templates that have no problem, and the problems of the
// others.
func CompileValid(files ...File) (*Set, problem.Problems) {
	return compileFiles(files, usableTemplates)
}

// compileFiles checks each template, and then all together.
func compileFiles(files []File, together func([]*Template) ([]*Template, problem.Problems)) (*Set, problem.Problems) {
	var all []*Template
	var problems problem.Problems
	for _, f := range files {
		found, bad := Parse(f.Path, f.Data)
		all, problems = append(all, found...), append(problems, bad...)
	}
	inOrder(all)
	kept, unusable := together(all)
	return NewSet(kept), append(problems, unusable...)
}

func (l *Loader) compileSet(files []File, problems problem.Problems) (*Set, error) {
	together := usableTemplates
	if l.Part {
		together = distinctTemplates
	}
	set, more := compileFiles(files, together)
	if err := append(problems, more...).Err(); err != nil {
		return nil, err
	}
	return set, nil
}

// errorWithoutPath returns an error without the path, which the problem already has.
func errorWithoutPath(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}

// listFiles returns the source's files, each as a source.
func (s Source) listFiles() ([]Source, error) {
	info, err := fs.Stat(s.FS, s.Name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []Source{s}, nil
	}
	entries, err := fs.ReadDir(s.FS, s.Name)
	if err != nil {
		return nil, err
	}
	var files []Source
	for _, e := range entries {
		if IsFile(e.Name()) {
			files = append(files, Source{FS: s.FS, Name: path.Join(s.Name, e.Name()), Path: path.Join(s.Path, e.Name())})
		}
	}
	return files, nil
}

// IsFile reports whether a file with that name in a folder of templates contains templates.
func IsFile(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".") && strings.TrimSuffix(name, path.Ext(name)) != "kustomization"
	}
	return false
}
