// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/request"
)

// inputFile is an input file with its content.
type inputFile struct {
	name string
	data []byte
}

// readFiles reads all manifests, and the namespaces and ServiceAccounts that they declare.
func (o *injectOptions) readFiles(stdin io.Reader) ([]inputFile, error) {
	names, err := listInputs(o.files)
	if err != nil {
		return nil, err
	}
	o.declared = manifest.Declared{Namespaces: map[string]request.Namespace{}}
	var files []inputFile
	for _, name := range names {
		data, err := readInput(name, stdin)
		if err != nil {
			return nil, err
		}
		if name == "-" {
			name = "standard input"
		}
		files = append(files, inputFile{name, data})
		for _, d := range yamledit.Split(data) {
			if err := o.declared.Read(d); err != nil {
				return nil, locateError(d, name, err)
			}
		}
	}
	return files, nil
}

// namespaceFor returns what is known about a namespace, from the manifests or the cluster, and from
// the flags, which win. If nothing is known about the opt-in, the namespace counts as opted
// in.
func (o *injectOptions) namespaceFor(name string) (request.Namespace, error) {
	ns := o.declared.Namespaces[name]
	ns.Name, ns.ServiceAccounts = name, accounts{o.declared, name == o.namespace, o.account, o.accountAnnotations, ns.ServiceAccounts}
	if _, err := overlayMetadata(accountFlag, nil, o.accountAnnotations); err != nil {
		return ns, err
	}
	var err error
	if ns.Labels, err = overlayMetadata("namespace-label", ns.Labels, o.labels); err == nil {
		ns.Annotations, err = overlayMetadata("namespace-annotation", ns.Annotations, o.annotations)
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
	return !o.declared.Namespaces[name].Known && !slices.ContainsFunc(o.labels, func(l string) bool {
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
	podPathValues      []string       // --pod-template-path
	podPaths           manifest.Paths // the same, parsed
	output             string
	quiet              bool
	strict             bool
	uninject           bool
	cluster            cluster.Options // whose templates are used if none are named

	declared manifest.Declared       // the manifests or the cluster have these namespaces, and the manifests these ServiceAccounts
	account  *request.ServiceAccount // of all pods, if it is not nil
}

// listInputs returns the named files, and the files in the named folders.
func listInputs(names []string) ([]string, error) {
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
