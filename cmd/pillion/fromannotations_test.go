// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestFromAnnotations checks each annotation that the documentation of another injector has. They are in the file
// annotations.txt, one on each line; NAME is a part that users choose. A template reads the annotation, and a case of its
// tests sets it. Or the page for users names it with the reason why it is not supported, and Pillion warns about it.
func TestFromAnnotations(t *testing.T) {
	t.Parallel()
	eachPeer(t, func(t *testing.T, peer string) {
		folder := filepath.Join(from, peer)
		list, err := os.ReadFile(filepath.Join(folder, "tests", "annotations.txt"))
		if err != nil {
			t.Fatal(err)
		}
		set, err := templates.Load(templates.Source{FS: os.DirFS(folder), Name: ".", Path: folder})
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile("../../manifests/docs/from-" + peer + ".md")
		if err != nil {
			t.Fatal(err)
		}
		cases := testsOf(t, folder)
		documented := map[string]bool{}
		for line := range strings.Lines(string(list)) {
			key := strings.TrimSpace(line)
			if key == "" || strings.HasPrefix(key, "#") {
				continue
			}
			documented[key] = true
			switch readers := readersOf(set, key); {
			case len(readers) > 0:
				if !strings.Contains(cases, strings.TrimSuffix(key, params.AnyName)) {
					t.Errorf("%s: no case of the tests sets it", key)
				}
			case !strings.Contains(string(page), "`"+key+"`"):
				t.Errorf("%s: no template reads it, and the page does not name it", key)
			default:
				if message := warningAbout(t, set, strings.ReplaceAll(key, params.AnyName, "a")); message == "" {
					t.Errorf("%s: no template reads it, and there is no warning about it", key)
				}
			}
		}
		for _, key := range keysOf(set) {
			if !documented[key] {
				t.Errorf("annotations.txt lacks %s, which a template reads", key)
			}
		}
	})
}

// testsOf returns the content of the test files of a folder.
func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "tests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// keysOf returns the annotations of other products that the templates read, with NAME behind a prefix.
func keysOf(set *templates.Set) (all []string) {
	for _, tmpl := range set.Templates {
		for _, p := range tmpl.Spec.Params {
			switch {
			case p.Annotation != "":
				all = append(all, p.Annotation)
			case p.Prefix != "" && len(p.Keys) == 0:
				all = append(all, p.Prefix+params.AnyName)
			}
			for _, name := range p.Keys {
				if p.Prefix != "" {
					all = append(all, p.Prefix+name)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readersOf returns the templates that read the annotation.
func readersOf(set *templates.Set, key string) (names []string) {
	for _, tmpl := range set.Templates {
		if slices.Contains(keysOf(&templates.Set{Templates: []*templates.Template{tmpl}}), key) {
			names = append(names, tmpl.Name)
		}
	}
	return names
}

// warningAbout returns what Pillion says about the annotation of a pod.
func warningAbout(t *testing.T, set *templates.Set, key string) string {
	t.Helper()
	result, err := inject.New(set).Inject(inject.Request{
		Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"},
		Object: []byte(`{"metadata":{"annotations":{"` + key + `":"1"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		if f.Code == inject.CodeUnknownParameter && strings.Contains(f.Message, key) {
			return cmp.Or(f.Message, key)
		}
	}
	return ""
}
