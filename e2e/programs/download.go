// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// downloadVariable is "auto" (the default: the demo downloads, the tests build), "always" or "never".
	downloadVariable = "E2E_DOWNLOAD"
	// indexVariable replaces envtestIndex, for example by a mirror's.
	indexVariable = "E2E_DOWNLOAD_INDEX"
	// envtestIndex is the index that controller-runtime's setup-envtest reads.
	envtestIndex = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

	indexLimit = 16 << 20
	megabyte   = 1_000_000
)

// downloader downloads the programs of envtest.
type downloader struct {
	index string
	// A download fails if no byte arrives for silence, or if it takes longer than total.
	silence, total time.Duration
}

func newDownloader() *downloader {
	return &downloader{index: cmp.Or(os.Getenv(indexVariable), envtestIndex), silence: 5 * time.Second, total: 5 * time.Minute}
}

// wantsDownload reports whether missing programs are downloaded.
func wantsDownload(value string, demo bool) (bool, error) {
	switch value {
	case "", "auto":
		return demo, nil
	case "always":
		return true, nil
	case "never":
		return false, nil
	}
	return false, fmt.Errorf("%s=%s: use auto, always or never", downloadVariable, value)
}

// downloadOnce returns the folder with the downloaded etcd, kube-apiserver and kubectl of a minor version, for example
// 1.37. It returns "" and prints the reason if they cannot be downloaded. It returns an error if ctx is done or the
// cache cannot be written, because a build would fail too.
func (d *downloader) downloadOnce(ctx context.Context, steps *Steps, minor string) (string, error) {
	what := "downloading etcd, kube-apiserver, kubectl " + minor + " (once)"
	dir, err := once(ctx, steps, "envtest-"+minor, what, func(dir string, progress *Progress) error {
		return d.downloadPrograms(ctx, steps, minor, dir, progress)
	})
	var file *fs.PathError
	switch {
	case err == nil:
		return dir, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.As(err, &file):
		return "", fmt.Errorf("the cache cannot be written, set E2E_CACHE to a folder of your own with 1 GB of space: %w", err)
	}
	steps.Say("Kubernetes is built, because it cannot be downloaded: %v", err)
	steps.Say("(%s=never does not try, and %s names another index)", downloadVariable, indexVariable)
	return "", nil
}

// archive is an entry of the index.
type archive struct {
	Hash string `yaml:"hash"` // SHA-512
	URL  string `yaml:"selfLink"`
}

// downloadPrograms fills dir with the programs of the newest patch version, after it has verified the archive's hash.
func (d *downloader) downloadPrograms(ctx context.Context, steps *Steps, minor, dir string, progress *Progress) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.total, fmt.Errorf("the download takes longer than %s", d.total))
	defer cancel()
	progress.Set("reading the index")
	found, err := d.findArchive(ctx, minor)
	if err != nil {
		return err
	}
	err = d.fetchURL(ctx, found.URL, func(body io.Reader, size int64) error {
		steps.Say("downloading %s, %.0f MB", found.URL, float64(size)/megabyte)
		hash, counted := sha512.New(), &counter{size: size, progress: progress}
		body = io.TeeReader(body, io.MultiWriter(hash, counted))
		unpackErr := unpackPrograms(body, dir)
		if _, ok := errors.AsType[*fs.PathError](unpackErr); ok {
			return unpackErr
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
		if got := hex.EncodeToString(hash.Sum(nil)); got != found.Hash {
			return fmt.Errorf("%s has the SHA-512 %.12s…, and the index has %.12s…", found.URL, got, found.Hash)
		}
		return unpackErr
	})
	if err != nil {
		return err
	}
	return checkDownloaded(ctx, dir, minor)
}

// checkDownloaded returns an error if a program is missing, cannot run here or has another version. The error is none
// of the cache.
func checkDownloaded(ctx context.Context, dir, minor string) error {
	if err := checkFolder(dir); err != nil {
		return fmt.Errorf("the archive: %v", err) //nolint:errorlint // see above
	}
	for name, args := range envtestPrograms() {
		found, err := versionOf(ctx, filepath.Join(dir, name), args...)
		if err != nil {
			return fmt.Errorf("the archive: %v", err) //nolint:errorlint // see above
		}
		if name == "kube-apiserver" && !isMinor(found, minor) {
			return fmt.Errorf("the archive's kube-apiserver is %s, not %s", found, minor)
		}
	}
	return nil
}

// envtestPrograms returns the programs in an archive, with the arguments that print their versions.
func envtestPrograms() map[string][]string {
	return map[string][]string{"etcd": {"--version"}, "kube-apiserver": {"--version"}, "kubectl": {"version", "--client"}}
}

// findArchive returns the newest patch version's archive for this platform.
func (d *downloader) findArchive(ctx context.Context, minor string) (found archive, err error) {
	var index struct {
		Releases map[string]map[string]archive `yaml:"releases"`
	}
	err = d.fetchURL(ctx, d.index, func(body io.Reader, _ int64) error {
		text, err := io.ReadAll(io.LimitReader(body, indexLimit))
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, &index); err != nil {
			return fmt.Errorf("the index %s is invalid: %w", d.index, err)
		}
		return nil
	})
	if err != nil {
		return archive{}, err
	}
	newest := -1
	for version, archives := range index.Releases {
		patch, err := strconv.Atoi(strings.TrimPrefix(version, "v"+minor+"."))
		if err != nil || patch <= newest { // another minor version, or a prerelease
			continue
		}
		name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
		if a, ok := archives[name]; ok {
			found, newest = a, patch
		}
	}
	if newest < 0 {
		return archive{}, fmt.Errorf("the index %s has no Kubernetes %s for %s/%s", d.index, minor, runtime.GOOS, runtime.GOARCH)
	}
	return found, nil
}

// fetchURL calls read with the body at the URL. The body's length is -1 if it is unknown.
func (d *downloader) fetchURL(ctx context.Context, url string, read func(body io.Reader, size int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(d.silence, func() { cancel(fmt.Errorf("nothing arrived for %s", d.silence)) })
	defer silent.Stop()
	err := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("get %s: %s", url, response.Status)
		}
		return read(&watchedReader{response.Body, func() { silent.Reset(d.silence) }}, response.ContentLength)
	}()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("get %s: %w", url, cause)
	}
	return err
}

// watchedReader calls arrived after each read of some bytes.
type watchedReader struct {
	io.Reader
	arrived func()
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.arrived()
	}
	return n, err
}

// counter reports written bytes as progress.
type counter struct {
	size, written int64
	progress      *Progress
}

func (c *counter) Write(p []byte) (int, error) {
	before := c.written
	c.written += int64(len(p))
	if c.written/megabyte > before/megabyte {
		c.progress.Set("%d of %d MB", c.written/megabyte, c.size/megabyte)
	}
	return len(p), nil
}

// unpackPrograms writes the programs of a .tar.gz to dir.
func unpackPrograms(body io.Reader, dir string) error {
	unzipped, err := gzip.NewReader(body)
	if err != nil {
		return err
	}
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Base(header.Name)
		if _, ok := envtestPrograms()[name]; !ok || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := unpackProgram(files, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
}

func unpackProgram(from io.Reader, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from) //nolint:gosec // its hash is checked before it is used
	return errors.Join(err, f.Close())
}
