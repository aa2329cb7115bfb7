// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/templates"
)

// pageTimeout is how long a request for the page may take to arrive.
const pageTimeout = 10 * time.Second

// examplesFile is the file of the page with the menu.
const examplesFile = "examples.json"

// playPage serves the files of the playground below a path that is a secret.
type playPage struct {
	host, token string
	examples    []byte
	files       http.Handler
}

func newPage(host string, files fs.FS, examples []byte) *playPage {
	p := &playPage{host: host, token: rand.Text(), examples: examples}
	p.files = http.StripPrefix("/"+p.token, http.FileServerFS(files))
	return p
}

// ServeHTTP implements [http.Handler]. A request for another host comes from a page whose name resolves to this address.
func (p *playPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "frame-ancestors 'none'") // the page itself has the rest
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	path, ok := strings.CutPrefix(r.URL.Path, "/"+p.token+"/")
	switch {
	case r.Host != p.host || !ok:
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case path == examplesFile:
		http.ServeContent(w, r, examplesFile, time.Time{}, bytes.NewReader(p.examples))
	default:
		p.files.ServeHTTP(w, r)
	}
}

// textOfTemplates returns the files of --templates unchanged. The page reports their problems.
func textOfTemplates(stdin io.Reader, paths []string) (string, error) {
	var documents []string
	for _, path := range paths {
		if path == "-" {
			data, err := io.ReadAll(stdin)
			if err != nil {
				return "", err
			}
			documents = append(documents, string(data))
			continue
		}
		files, err := templateFilesIn(path)
		if err != nil {
			return "", err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			documents = append(documents, strings.TrimSuffix(string(data), "\n")+"\n")
		}
	}
	if len(paths) > 0 && len(documents) == 0 {
		return "", cli.ErrNoTemplates
	}
	return strings.Join(documents, "---\n"), nil
}

// templateFilesIn returns a file, or the files of templates in a folder.
func templateFilesIn(path string) (files []string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		if templates.IsFile(e.Name()) && !e.IsDir() {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, err
}
