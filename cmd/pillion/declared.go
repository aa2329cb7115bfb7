// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/workload"
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

// read reads all manifests, and the namespaces and ServiceAccounts that they declare.
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

// declare records the namespaces and ServiceAccounts in a document. It returns an error if one of them
// cannot be read: its pods must not count as opted in for that reason.
func (o *injectOptions) declare(d yamledit.Document) error {
	// A document with escapes may contain the word without these letters.
	if !slices.ContainsFunc([]string{"Namespace", "ServiceAccount", `\`}, func(word string) bool { return bytes.Contains(d.Body, []byte(word)) }) {
		return nil
	}
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 {
		return err
	}
	node, err := tree.FromYAML(root.Node)
	if err != nil {
		if kind := workload.KindOf(root.Content[0]); kind == "Namespace" || kind == "ServiceAccount" {
			return fmt.Errorf("this %s cannot be read: %w", kind, err)
		}
		return nil
	}
	return o.declareIn(&node, "", "")
}

// declareIn records the namespaces and ServiceAccounts in an object or a list.
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
	case kind == "ServiceAccount":
		if o.accounts == nil {
			o.accounts = map[string]templates.ServiceAccount{}
		}
		return declareAccount(o.accounts, node)
	case isList && (of == "" || of == "Namespace" || of == "ServiceAccount"):
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
	if err := checkMaps(node, fmt.Sprintf("the Namespace %q", name)); err != nil {
		return err
	}
	o.declared[name] = templates.Namespace{
		Name: name, Known: true,
		Labels: workload.Strings(node.At("metadata", "labels")), Annotations: workload.Strings(node.At("metadata", "annotations")),
	}
	return nil
}

// about returns what is known about a namespace, from the manifests or the cluster, and from
// the flags, which win. If nothing is known about the opt-in, the namespace counts as opted
// in.
func (o *injectOptions) about(name string) (templates.Namespace, error) {
	ns := o.declared[name]
	ns.Name, ns.ServiceAccounts = name, accounts{o.accounts, name == o.namespace, o.account, o.accountAnnotations, ns.ServiceAccounts}
	if _, err := overlay(accountFlag, nil, o.accountAnnotations); err != nil {
		return ns, err
	}
	var err error
	if ns.Labels, err = overlay("namespace-label", ns.Labels, o.labels); err == nil {
		ns.Annotations, err = overlay("namespace-annotation", ns.Annotations, o.annotations)
	}
	if err != nil || ns.Known || len(o.labels)+len(o.annotations) == 0 {
		return ns, err
	}
	ns.Known = true
	if o.assumesOptIn(name) {
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[inject.LabelInject] = inject.Enabled
	}
	return ns, nil
}

// assumesOptIn reports whether a namespace counts as opted in because nothing is known about it.
func (o *injectOptions) assumesOptIn(name string) bool {
	return !o.declared[name].Known && !slices.ContainsFunc(o.labels, func(l string) bool {
		return strings.HasPrefix(l, inject.LabelInject+"=") || l == inject.LabelInject+"-"
	})
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
	// accountAnnotations are those of --service-account-annotation.
	accountAnnotations []string
	output             string
	quiet              bool
	strict             bool
	uninject           bool
	cluster            cluster.Options // whose templates are used if none are named

	declared map[string]templates.Namespace      // by the manifests or the cluster
	accounts map[string]templates.ServiceAccount // by the manifests, by namespace (or "") and name
	account  *templates.ServiceAccount           // of all pods, if it is not nil
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
