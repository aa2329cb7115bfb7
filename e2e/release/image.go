// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	home      = "https://github.com/pillion-dev/pillion"
	imageName = "ghcr.io/pillion-dev/pillion"
)

func (r *release) image() string { return imageName + ":" + r.version }

// imageConfig is what the Dockerfile sets.
func imageConfig() v1.Config {
	return v1.Config{User: "65532:65532", Entrypoint: []string{"/pillion"}}
}

// writeImage writes the image of all platforms of Linux into the folder image, as an OCI layout,
// and its digest into image.txt. It returns its name with the digest.
func (r *release) writeImage() (string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		img, err := r.imageFor(p)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	index = mutate.Annotations(index, map[string]string{
		"org.opencontainers.image.created":  r.time.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.revision": r.revision,
		"org.opencontainers.image.source":   home, // a registry shows the image at the repository
		"org.opencontainers.image.version":  r.version,
	}).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	// The names by which skopeo finds the image and containerd imports it.
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": r.image(),
		}},
	})
	if _, err := layout.Write(filepath.Join(r.out, "image"), named); err != nil {
		return "", err
	}
	name := r.image() + "@" + digest.String()
	return name, r.write("image.txt", []byte(name+"\n"))
}

// imageFor is the program alone.
func (r *release) imageFor(p platform) (v1.Image, error) {
	program, err := os.ReadFile(r.binary(p))
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	if err := r.tar(&packed, []file{{"pillion", 0o755, program}}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: created, Config: imageConfig(), RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY /pillion /pillion"}})
}
