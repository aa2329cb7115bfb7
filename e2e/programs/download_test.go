// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// proxyVariable is the index that a test's own program downloads from through a proxy.
const proxyVariable = "E2E_PROXY_TEST"

// archiveOf returns a .tar.gz with programs that print these versions, as envtest has them.
func archiveOf(t *testing.T, versions map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for name, version := range versions {
		text := "#!/bin/sh\necho " + version + "\n"
		err := files.WriteHeader(&tar.Header{Name: "controller-tools/envtest/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func envtest() map[string]string {
	versions := good()
	delete(versions, "kube-controller-manager")
	return versions
}

// mirror serves an index and an archive. Tests change its fields.
type mirror struct {
	*httptest.Server
	archive  []byte
	hash     string
	requests []string
	serve    func(w http.ResponseWriter, r *http.Request) bool // reports whether it answered
}

func newMirror(t *testing.T, archive []byte) *mirror {
	t.Helper()
	m := &mirror{archive: archive, hash: sumOf(archive)}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests = append(m.requests, r.URL.Path)
		switch {
		case m.serve != nil && m.serve(w, r):
		case r.URL.Path == "/index.yaml":
			fmt.Fprint(w, m.index())
		case r.URL.Path == "/archive":
			_, _ = w.Write(m.archive)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func sumOf(archive []byte) string {
	sum := sha512.Sum512(archive)
	return hex.EncodeToString(sum[:])
}

// index has older and newer versions around the one to choose.
func (m *mirror) index() string {
	entry := func(version, hash, path string) string {
		return fmt.Sprintf("  %s:\n    envtest-%s-%s-%s.tar.gz:\n      hash: %s\n      selfLink: %s%s\n", version, version, runtime.GOOS, runtime.GOARCH, hash, m.URL, path)
	}
	return "releases:\n" + entry("v1.37.0", "0", "/older") + entry("v1.37.1", m.hash, "/archive") +
		entry("v1.37.2-rc.0", "0", "/prerelease") + entry("v1.38.0", "0", "/newer")
}

func (m *mirror) downloader() *downloader {
	return &downloader{index: m.URL + "/index.yaml", silence: 2 * time.Second, total: time.Minute}
}

func TestDownload(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("E2E_CACHE", cache)
	m := newMirror(t, archiveOf(t, envtest()))
	steps, shown := quickSteps()
	for range 2 { // the second time from the cache
		dir, err := m.downloader().downloadOnce(t.Context(), steps, "1.37")
		if err != nil || dir != filepath.Join(cache, "envtest-1.37") {
			t.Fatalf("%s, %v\n%s", dir, err, shown)
		}
		p, etcd, err := findVersions(t.Context(), dir)
		if err != nil || p.Version != "v1.37.1" || etcd != "3.6.5" {
			t.Errorf("%+v, etcd %s, %v", p, etcd, err)
		}
		if err := p.findKubectl(t.Context(), nil); err != nil || p.Kubectl != filepath.Join(dir, "kubectl") {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if got := strings.Join(m.requests, " "); got != "/index.yaml /archive" {
		t.Errorf("the requests are %s", got)
	}
	if !strings.Contains(shown.String(), "  downloading "+m.URL+"/archive, 0 MB\n") {
		t.Errorf("shown is\n%s", shown)
	}
}

// TestDownloadFails checks that each failure gives its reason within seconds and leaves nothing in the cache, so that
// the programs are built.
func TestDownloadFails(t *testing.T) {
	stall := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for name, c := range map[string]struct {
		change func(m *mirror, d *downloader)
		minor  string
		want   string
	}{
		"wrong hash":         {func(m *mirror, _ *downloader) { m.hash = strings.Repeat("0", 128) }, "1.37", "/archive has the SHA-512 "},
		"no hash":            {func(m *mirror, _ *downloader) { m.hash = `""` }, "1.37", "/archive has the SHA-512 "},
		"not in the index":   {func(*mirror, *downloader) {}, "1.39", "has no Kubernetes 1.39 for " + runtime.GOOS},
		"connection refused": {func(m *mirror, _ *downloader) { m.Close() }, "1.37", "connection refused"},
		"not found":          {func(_ *mirror, d *downloader) { d.index += "x" }, "1.37", "404 Not Found"},
		"no index":           {func(_ *mirror, d *downloader) { d.index = strings.Replace(d.index, "index.yaml", "archive", 1) }, "1.37", "is invalid"},
		"never answers": {func(m *mirror, d *downloader) {
			d.silence = 50 * time.Millisecond
			m.serve = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		}, "1.37", "/index.yaml: nothing arrived for 50ms"},
		"stalls": {func(m *mirror, d *downloader) {
			d.silence = 200 * time.Millisecond
			m.serve = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/archive" {
					return false
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(m.archive)))
				_, _ = w.Write(m.archive[:len(m.archive)/2])
				stall(w, r)
				return true
			}
		}, "1.37", "/archive: nothing arrived for 200ms"},
		"too slow": {func(m *mirror, d *downloader) {
			d.total = 100 * time.Millisecond
			m.serve = func(w http.ResponseWriter, r *http.Request) bool {
				for r.Context().Err() == nil {
					_, _ = w.Write([]byte("#"))
					_ = http.NewResponseController(w).Flush()
				}
				return true
			}
		}, "1.37", "the download takes longer than 100ms"},
		"is cut off": {func(m *mirror, _ *downloader) {
			m.archive = m.archive[:len(m.archive)/2]
		}, "1.37", "/archive has the SHA-512 "},
		"lacks a program": {func(m *mirror, _ *downloader) {
			versions := envtest()
			delete(versions, "etcd")
			m.archive = archiveOf(t, versions)
			m.hash = sumOf(m.archive)
		}, "1.37", "the archive: there is no etcd in it"},
		"another version": {func(m *mirror, _ *downloader) {
			versions := envtest()
			versions["kube-apiserver"] = "Kubernetes v1.36.0"
			m.archive = archiveOf(t, versions)
			m.hash = sumOf(m.archive)
		}, "1.37", "the archive's kube-apiserver is v1.36.0, not 1.37"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			t.Setenv("E2E_CACHE", cache)
			m := newMirror(t, archiveOf(t, envtest()))
			d := m.downloader()
			c.change(m, d)
			steps, shown := quickSteps()
			dir, err := d.downloadOnce(t.Context(), steps, c.minor)
			if dir != "" || err != nil {
				t.Errorf("the folder is %q, the error %v", dir, err)
			}
			if text := shown.String(); !strings.Contains(text, "Kubernetes is built, because it cannot be downloaded: ") || !strings.Contains(text, c.want) {
				t.Errorf("want %s in\n%s", c.want, text)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, "*")); len(left) != 1 || filepath.Base(left[0]) != "envtest-"+c.minor+".lock" {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestDownloadCache checks that a cache that cannot be written is an error, because a build would fail too.
func TestDownloadCache(t *testing.T) {
	m := newMirror(t, archiveOf(t, envtest()))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("E2E_CACHE", file)
	if dir, err := m.downloader().downloadOnce(t.Context(), nil, "1.37"); dir != "" || err == nil || !strings.Contains(err.Error(), "set E2E_CACHE") {
		t.Errorf("%q, %v", dir, err)
	}
}

// TestDownloadCanceled checks that an interrupt does not start a build.
func TestDownloadCanceled(t *testing.T) {
	t.Setenv("E2E_CACHE", t.TempDir())
	m := newMirror(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	m.serve = func(_ http.ResponseWriter, r *http.Request) bool { cancel(); <-r.Context().Done(); return true }
	if _, err := m.downloader().downloadOnce(ctx, nil, "1.37"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestDownloadProxy checks that a download uses the proxy that the environment names.
func TestDownloadProxy(t *testing.T) {
	m := newMirror(t, archiveOf(t, envtest()))
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for proxy, want := range map[string]string{m.URL: "envtest-1.37 <nil>\n", "http://" + closed.Addr().String(): "proxyconnect tcp: dial tcp "} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), proxyVariable+"=http://envtest.example/index.yaml", "HTTP_PROXY="+proxy, "http_proxy="+proxy,
			"NO_PROXY=", "no_proxy=", "E2E_CACHE="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", proxy, err, out)
		}
	}
}

// downloadThroughProxy is the program of TestDownloadProxy.
func downloadThroughProxy(index string) {
	d := &downloader{index: index, silence: 10 * time.Second, total: time.Minute}
	dir, err := d.downloadOnce(context.Background(), NewSteps(os.Stdout), "1.37")
	fmt.Println(filepath.Base(dir), err)
}

func TestWantsDownload(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][2]bool{"": {false, true}, "auto": {false, true}, "always": {true, true}, "never": {false, false}} {
		for i, demo := range []bool{false, true} {
			if got, err := wantsDownload(value, demo); err != nil || got != want[i] {
				t.Errorf("%q, demo %t: %t, %v", value, demo, got, err)
			}
		}
	}
	if _, err := wantsDownload("no", true); err == nil || !strings.Contains(err.Error(), "use auto, always or never") {
		t.Error(err)
	}
}

// TestBuiltProgramsAreUsed checks that nothing is downloaded if the programs have already been built, or if the variable
// forbids it.
func TestBuiltProgramsAreUsed(t *testing.T) {
	cache := t.TempDir()
	m := newMirror(t, archiveOf(t, envtest()))
	for name, value := range map[string]string{"E2E_CACHE": cache, indexVariable: m.URL + "/index.yaml", assetsVariable: "", handedOver: "", "KUBERNETES": "", downloadVariable: "always"} {
		t.Setenv(name, value)
	}
	_, version, err := kubernetesTools(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "kubernetes-"+version)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err := DemoKubernetes(t.Context(), nil); err != nil || p.Etcd != filepath.Join(dir, "etcd") || len(m.requests) > 0 {
		t.Errorf("%+v, %v, %v", p, err, m.requests)
	}
	// The build cannot get its lock, so that the test builds nothing.
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir+".lock", 0o755)); err != nil {
		t.Fatal(err)
	}
	m.hash = "wrong"
	for value, requests := range map[string]int{"never": 0, "auto": 2} {
		t.Setenv(downloadVariable, value)
		m.requests = nil
		if p, err := DemoKubernetes(t.Context(), nil); err == nil || !strings.Contains(err.Error(), dir+".lock") || len(m.requests) != requests {
			t.Errorf("%s: %+v, %v, requests %v", value, p, err, m.requests)
		}
	}
}
