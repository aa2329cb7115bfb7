// SPDX-License-Identifier: Apache-2.0

// Command release builds everything that a release consists of into a new folder: binaries, the
// image, install manifests, the chart, bills of materials, a krew manifest, notes and checksums. It
// publishes nothing; .github/workflows/release.yml does. README.md of the folder e2e says why it is
// a module of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := release{log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "release: "+format+"\n", args...) }}
	flag.StringVar(&r.version, "version", "", "the release, for example v0.1.0")
	flag.StringVar(&r.repository, "repository", "../..", "the clone whose HEAD is built")
	flag.StringVar(&r.out, "out", "", "the folder to create")
	syft := flag.String("syft", "", "the command that runs syft")
	flag.Parse()
	r.syft, r.platforms = strings.Fields(*syft), platforms()
	if err := r.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what to build, and from what.
type release struct {
	version    string // v0.1.0
	repository string
	out        string
	syft       []string
	platforms  []platform
	noPage     bool // build without the playground, because a test has no Node.js
	log        func(format string, args ...any)

	source // set by build

	page []file // of the playground, set by build
}

// build creates the folder out.
func (r *release) build(ctx context.Context) (err error) {
	if len(r.syft) == 0 || r.out == "" {
		return errors.New("-out and -syft are required; run make release")
	}
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return fmt.Errorf("%w; remove it first", err)
	}
	work, err := os.MkdirTemp("", "pillion-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if r.source, err = checkOut(ctx, r.repository, r.version, work); err != nil {
		return err
	}
	r.log("%s is commit %s of %s", r.version, r.revision, r.time.Format("2006-01-02 15:04:05"))
	if err := r.writeNotes(); err != nil {
		return err
	}
	if err := r.writeManifests(); err != nil {
		return err
	}
	if err := r.writeChart(); err != nil {
		return err
	}
	if err := r.buildPage(ctx); err != nil {
		return err
	}
	if err := r.writeBinaries(ctx); err != nil {
		return err
	}
	if err := r.writeKrew(); err != nil {
		return err
	}
	digest, err := r.writeImage()
	if err != nil {
		return err
	}
	r.log("the image is %s", digest)
	return r.writeChecksums()
}
