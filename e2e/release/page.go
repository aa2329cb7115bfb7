// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// buildPage builds the playground, the folder that the program looks for next to itself.
func (r *release) buildPage(ctx context.Context) error {
	if r.noPage {
		r.log("without the playground")
		return nil
	}
	if err := lacksNode(); err != nil {
		return err
	}
	r.log("building the playground")
	if _, err := runWith(ctx, []string{"GOWORK=off"}, r.root, "make", "playground", "GO=go"); err != nil {
		return err
	}
	folder := filepath.Join(r.root, "bin/playground")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err == nil && filepath.Ext(e.Name()) == ".gz" {
			content, err = compressedAgain(content)
		}
		if err != nil {
			return err
		}
		r.page = append(r.page, file{path.Join("playground", e.Name()), 0o644, content})
	}
	return nil
}

// lacksNode returns an error if there is no Node.js or no npm.
func lacksNode() error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the playground of a release needs Node.js and npm; install both: %w", err)
		}
	}
	return nil
}

// compressedAgain compresses a file again, because the bytes that Node.js writes depend on its version.
func compressedAgain(file []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(plain)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
