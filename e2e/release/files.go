// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	notesFile     = "notes.txt" // Markdown; not .md, because it is not a page of the project
	checksumsFile = "checksums.txt"
)

// download is the address of a file of the release.
func (r *release) download(name string) string {
	return home + "/releases/download/" + r.version + "/" + name
}

var link = regexp.MustCompile(`\]\(([\w./-]+(#[\w-]+)?)\)`)

// writeNotes writes the section of CHANGELOG.md about the release. Until the commit has the tag,
// that may be Unreleased.
func (r *release) writeNotes() error {
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, found := section(string(changes), r.version)
	if !found && r.tagged {
		return fmt.Errorf("CHANGELOG.md has no section %q; rename Unreleased and move the tag", "## "+r.version)
	}
	if !found {
		r.log("the notes are those of Unreleased, because CHANGELOG.md has no section for %s", r.version)
		if notes, found = section(string(changes), "Unreleased"); !found {
			return errors.New("CHANGELOG.md has no section Unreleased; add it")
		}
	}
	notes = link.ReplaceAllString(notes, "]("+home+"/blob/"+r.version+"/$1)")
	return r.write(notesFile, []byte(notes))
}

// section returns the text below a heading of the second level, up to the next.
func section(text, heading string) (string, bool) {
	_, rest, found := strings.Cut("\n"+text, "\n## "+heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	return strings.TrimSpace(rest) + "\n", found
}

// writeSBOM writes the bill of materials of a binary. Syft gives it a random name and the current
// time. Both are replaced, so that it is the same for the same binary.
func (r *release) writeSBOM(ctx context.Context, p platform) error {
	name := r.name(p, ".spdx.json")
	raw := filepath.Join(r.work, name)
	command := append(append([]string{}, r.syft...), "scan", "--quiet", "file:"+r.binary(p),
		"--source-name", "pillion", "--source-version", r.version, "-o", "spdx-json="+raw)
	if _, err := runWith(ctx, []string{"SYFT_CHECK_FOR_APP_UPDATE=false"}, r.work, command...); err != nil {
		return err
	}
	text, err := os.ReadFile(raw)
	if err != nil {
		return err
	}
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return err
	}
	creation, ok := bill["creationInfo"].(map[string]any)
	if !ok {
		return fmt.Errorf("the bill of materials %s has no creationInfo", name)
	}
	creation["created"] = r.time.Format(time.RFC3339)
	bill["documentNamespace"] = r.download(name)
	if text, err = json.MarshalIndent(bill, "", " "); err != nil {
		return err
	}
	return r.write(name, append(text, '\n'))
}

// writeKrew writes the manifest by which krew installs the archives, as kubectl pillion.
func (r *release) writeKrew() error {
	var supported []any
	for _, p := range r.platforms {
		archive := r.archive(p)
		sum, err := r.sum(archive)
		if err != nil {
			return err
		}
		supported = append(supported, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": p.os, "arch": p.arch}},
			"uri":      r.download(archive), "sha256": sum, "bin": p.program(),
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]any{"name": "pillion"},
		"spec": map[string]any{
			"version": r.version, "homepage": home, "platforms": supported,
			"shortDescription": "Explain and test sidecar injection",
			"description": "Explains why a pod did or did not get a sidecar from Pillion, reports which pods lack one,\n" +
				"and checks, tests and tries templates before they are in a cluster.\n",
		},
	})
	if err != nil {
		return err
	}
	return r.write("krew.yaml", text)
}

// writeChecksums writes the SHA-256 sums of all files that users download, as sha256sum does. image.txt
// has the digest of the image, so its sum covers the image too.
func (r *release) writeChecksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, e := range entries {
		if e.IsDir() || e.Name() == notesFile {
			continue
		}
		sum, err := r.sum(e.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, e.Name())
	}
	return r.write(checksumsFile, lines.Bytes())
}

func (r *release) sum(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(r.out, name))
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}
