// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// manifest is an input file with its content.
type manifest struct {
	name string
	data []byte
}

// read reads all manifests, and the namespaces that they declare.
func (o *injectOptions) read(stdin io.Reader) ([]manifest, error) {
	names, err := inputs(o.files)
	if err != nil {
		return nil, err
	}
	o.declared = map[string]templates.Namespace{}
	var files []manifest
	for _, name := range names {
		data, err := readInput(name, stdin)
		if err != nil {
			return nil, err
		}
		if name == "-" {
			name = "standard input"
		}
		files = append(files, manifest{name, data})
		for _, d := range yamledit.Split(data) {
			if err := o.declare(d); err != nil {
				return nil, located(d, name, err)
			}
		}
	}
	return files, nil
}

// declare records the namespaces in a document. It returns an error if a Namespace cannot be
// read, because its pods must not count as opted in for that reason.
func (o *injectOptions) declare(d yamledit.Document) error {
	// A document with escapes may contain the word without these letters.
	if !bytes.Contains(d.Body, []byte("Namespace")) && !bytes.Contains(d.Body, []byte(`\`)) {
		return nil
	}
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 {
		return err
	}
	node, err := tree.FromYAML(root.Node)
	if err != nil {
		if kindOf(root.Content[0]) == "Namespace" {
			return fmt.Errorf("this Namespace cannot be read: %w", err)
		}
		return nil
	}
	return o.declareIn(&node, "", "")
}

// declareIn records the namespaces in an object or a list.
func (o *injectOptions) declareIn(node *tree.Node, apiVersion, kind string) error {
	if text := node.At("apiVersion").Text(); text != "" {
		apiVersion = text
	}
	if text := node.At("kind").Text(); text != "" {
		kind = text
	}
	of, isList := strings.CutSuffix(kind, "List")
	switch {
	case apiVersion != "v1":
	case kind == "Namespace":
		return o.declareOne(node)
	case isList && (of == "" || of == "Namespace"):
		items := node.At("items").Items()
		for i := range items {
			if err := o.declareIn(&items[i], apiVersion, of); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *injectOptions) declareOne(node *tree.Node) error {
	name := node.At("metadata", "name").Text()
	if name == "" {
		return errors.New("this Namespace has no metadata.name that is a string")
	}
	for _, field := range []string{"labels", "annotations"} {
		if k := node.At("metadata", field).Kind(); node.At("metadata", field) != nil && k != tree.Object && k != tree.Null {
			return fmt.Errorf("metadata.%s of the Namespace %q must be an object", field, name)
		}
	}
	o.declared[name] = templates.Namespace{
		Name: name, Known: true,
		Labels: texts(node.At("metadata", "labels")), Annotations: texts(node.At("metadata", "annotations")),
	}
	return nil
}

// Labels or annotations. Values without quotes become strings, as their author meant them.
func texts(node *tree.Node) map[string]string {
	all := map[string]string{}
	members := node.Members()
	for i := range members {
		text := members[i].Text()
		if k := members[i].Kind(); k != tree.String && k != tree.Null { // null means ""
			text = members[i].String()
		}
		all[members[i].Name()] = text
	}
	return all
}

// about returns what is known about a namespace, from the manifests or the cluster, and from
// the flags, which win. If nothing is known about the opt-in, the namespace counts as opted
// in.
func (o *injectOptions) about(name string) (templates.Namespace, error) {
	ns := o.declared[name]
	ns.Name = name
	var err error
	if ns.Labels, err = overlay("namespace-label", ns.Labels, o.labels); err == nil {
		ns.Annotations, err = overlay("namespace-annotation", ns.Annotations, o.annotations)
	}
	if err != nil || ns.Known || len(o.labels)+len(o.annotations) == 0 {
		return ns, err
	}
	ns.Known = true
	if !slices.ContainsFunc(o.labels, func(l string) bool {
		return strings.HasPrefix(l, inject.LabelInject+"=") || l == inject.LabelInject+"-"
	}) {
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[inject.LabelInject] = inject.Enabled
	}
	return ns, nil
}

// overlay changes labels or annotations as kubectl label and annotate do.
func overlay(flag string, to map[string]string, changes []string) (map[string]string, error) {
	if len(changes) == 0 {
		return to, nil
	}
	all := map[string]string{}
	maps.Copy(all, to)
	for _, text := range changes {
		key, value, ok := strings.Cut(text, "=")
		bare, without := strings.CutSuffix(text, "-")
		switch {
		case ok && key != "":
			all[key] = value
		case !ok && without && bare != "":
			delete(all, bare)
		default:
			return nil, fmt.Errorf("--%s must be KEY=VALUE, or KEY- to remove it, not %q", flag, text)
		}
	}
	return all, nil
}

// errArray is the error for a JSON array of objects. kubectl does not read one either.
var errArray = errors.New("this is an array of objects, and no object: write them one after another (with jq, -c '.[]' in place of -s), or as items of a List")

// isArray reports whether a document is an array of Kubernetes objects.
func isArray(root *yaml.Node) bool {
	return root.Kind == yaml.SequenceNode && slices.ContainsFunc(root.Content, func(item *yaml.Node) bool {
		return isArray(item) || yamledit.Member(item, "kind") != nil && yamledit.Member(item, "apiVersion") != nil
	})
}

// injectOptions are the flags of inject.
type injectOptions struct {
	files       []string
	templates   []string
	namespace   string
	labels      []string
	annotations []string
	output      string
	quiet       bool
	strict      bool
	uninject    bool

	declared map[string]templates.Namespace // by the manifests or the cluster
}

// inputs returns the named files, and the files in the named folders.
func inputs(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err == nil && !info.IsDir() {
			all = append(all, name)
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
				all = append(all, filepath.Join(name, e.Name()))
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("%s: there is no *.yaml, *.yml or *.json in this folder", name)
		}
	}
	return all, nil
}

func readInput(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}
