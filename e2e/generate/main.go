// SPDX-License-Identifier: Apache-2.0

// Generate writes the CustomResourceDefinitions from the Go types of templates.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const generator = "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0"

const header = "# Generated from templates/v1alpha1. To change it, run \"make generate\".\n"

func main() {
	into := flag.String("into", "", "write the files into this `FOLDER`")
	flag.Parse()
	if err := run(context.Background(), *into); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, into string) error {
	if into == "" {
		return errors.New("use -into FOLDER")
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	raw, err := os.MkdirTemp("", "crds")
	if err != nil {
		return err
	}
	defer os.RemoveAll(raw)
	cmd := exec.CommandContext(ctx, "go", "run", generator, "crd", "paths=./templates/v1alpha1", "output:crd:dir="+raw)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", generator, err)
	}
	files, err := filepath.Glob(filepath.Join(raw, "pillion.dev_*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("%s wrote no file", generator))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if text, err = unfolded(text); err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.Base(file), "pillion.dev_")
		if err := os.WriteFile(filepath.Join(into, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unfolded returns a document whose descriptions have one line for each paragraph. The lines of Go
// comments would look ragged in kubectl explain.
func unfolded(text []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	unfold(&doc)
	out := bytes.NewBufferString(header)
	e := yaml.NewEncoder(out)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

func unfold(n *yaml.Node) {
	for i, item := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "description" && item.Kind == yaml.ScalarNode {
			paragraphs := strings.Split(item.Value, "\n\n")
			for k := range paragraphs {
				paragraphs[k] = strings.Join(strings.Fields(paragraphs[k]), " ")
			}
			item.Value, item.Style = strings.Join(paragraphs, "\n\n"), 0
		}
		unfold(item)
	}
}
