// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func platforms() (all []platform) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		all = append(all, platform{system, "amd64"}, platform{system, "arm64"})
	}
	return all
}

// program is the name of the binary in an archive.
func (p platform) program() string {
	if p.os == "windows" {
		return "pillion.exe"
	}
	return "pillion"
}

// name is that of a file of the release for a platform.
func (r *release) name(p platform, extension string) string {
	return "pillion_" + r.version + "_" + p.os + "_" + p.arch + extension
}

func (r *release) archive(p platform) string {
	if p.os == "windows" {
		return r.name(p, ".zip")
	}
	return r.name(p, ".tar.gz")
}

func (r *release) binary(p platform) string {
	return filepath.Join(r.work, p.os+"-"+p.arch, p.program())
}

// goBuild has the flags of the Dockerfile. -buildvcs reads the version from the tag, and fails
// if it cannot.
func goBuild() []string {
	return []string{"go", "build", "-buildvcs=true", "-trimpath", "-pgo=cmd/pillion/cpu.pprof", "-ldflags=-s -w", "-o"}
}

// writeBinaries builds the program for each platform, and writes its archive and its bill of materials.
func (r *release) writeBinaries(ctx context.Context) error {
	for _, p := range r.platforms {
		r.log("building %s", r.archive(p))
		// These also have to be set if the user has set others, in the environment or with go env -w.
		env := []string{
			"GOFLAGS=-buildvcs=true", "GOWORK=off", "CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		}
		if _, err := runWith(ctx, env, r.root, append(goBuild(), r.binary(p), "./cmd/pillion")...); err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(r.binary(p))
		if err != nil {
			return err
		}
		if info.Main.Version != r.version {
			return fmt.Errorf("the binary reports the version %s instead of %s; the commit may have a later tag", info.Main.Version, r.version)
		}
		if err := r.writeArchive(p); err != nil {
			return err
		}
		if err := r.writeSBOM(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// writeArchive packs the program, the license and the playground.
func (r *release) writeArchive(p platform) error {
	program, err := os.ReadFile(r.binary(p))
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, r.archive(p)))
	if err != nil {
		return err
	}
	files := append([]file{{p.program(), 0o755, program}, {"LICENSE", 0o644, license}}, r.page...)
	if p.os == "windows" {
		err = r.zip(out, files)
	} else {
		z := gzip.NewWriter(out)
		err = errors.Join(r.tar(z, files), z.Close())
	}
	return errors.Join(err, out.Close())
}

// file is an entry of an archive.
type file struct {
	name    string
	mode    os.FileMode
	content []byte
}

func (r *release) tar(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		err := t.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: r.time})
		if err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}

func (r *release) zip(w io.Writer, files []file) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.time}
		h.SetMode(f.mode)
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return z.Close()
}
