// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// The addresses of a release, without its version.
const (
	releaseFiles = "github.com/pillion-dev/pillion/releases/download/"
	releaseTree  = "raw.githubusercontent.com/pillion-dev/pillion/"
)

// TestTwoCommands runs the two commands of the README that lead from a cluster with cert-manager to a pod with a sidecar,
// word for word, one right after the other. What they download comes from this working tree.
func TestTwoCommands(t *testing.T) {
	t.Parallel()
	_, install, _ := strings.Cut(page(t, "README.md"), "\n## Install\n")
	install, _, _ = strings.Cut(install, "\n## ")
	_, block, _ := strings.Cut(install, "\n```console\n")
	block, _, _ = strings.Cut(block, "\n```")
	commands := commandsIn(t, block)
	helm := regexp.MustCompile("`(helm install [^`]+)`").FindAllStringSubmatch(install, -1)
	if len(commands) != 2 || len(helm) != 1 {
		t.Fatalf("the README installs Pillion with the commands %q, or with Helm %q", commands, helm)
	}
	for name, first := range map[string]command{"kubectl": commands[0], "helm": {line: helm[0][1]}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &installed{Cluster: newCluster(t), namespace: "shop"}
			if _, err := i.StartCertManager(t.Context()); err != nil {
				t.Fatal(err)
			}
			u := i.newHelmUser(t)
			u.downloads(t)
			start := time.Now()
			u.follow(t, first)
			running := make(chan error, 1)
			go func() { running <- i.deploy(t) }()
			u.follow(t, commands[1])
			if err := <-running; err != nil {
				t.Fatal(err)
			}
			u.wantHello(t)
			t.Logf("%s after the first command, the pod has its sidecar", time.Since(start).Round(time.Millisecond))
		})
	}
}

// wantHello waits for the pod of examples/hello.yaml. It is never there without its sidecar.
func (u *user) wantHello(t *testing.T) {
	t.Helper()
	eventuallyWithin(t, deployWithin, "the pod has a sidecar", func(ctx context.Context) error {
		pods, err := u.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=hello"})
		if err != nil || len(pods.Items) == 0 {
			return errors.Join(errors.New("there is no pod"), err)
		}
		if i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return !isInjected(&pod) }); i >= 0 {
			t.Fatalf("the pod %s has no sidecar", pods.Items[i].Name)
		}
		return nil
	})
}

// downloads gives the user an internet that has a release of this working tree, and nothing else: a proxy, and a
// server with certificates that the user's programs trust.
func (u *user) downloads(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		t.Skipf("on %s, no variable makes programs trust the server with the files of a release", runtime.GOOS)
	}
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&release{t: t, user: u, root: root})
	cert, key, err := env.Authority.Serving("github.com", "raw.githubusercontent.com")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	proxy := httptest.NewUnstartedServer(tunnel(func(string) string { return server.Listener.Addr().String() }))
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Start()
	t.Cleanup(proxy.Close)
	trusted := filepath.Join(u.dir, "internet.crt")
	if err := os.WriteFile(trusted, env.Authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	u.environ = append(u.environ, "HTTPS_PROXY="+proxy.URL, "SSL_CERT_FILE="+trusted)
}

// tunnel is a proxy that connects its clients to another address than the one that they want.
func tunnel(address func(wanted string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		to, err := new(net.Dialer).DialContext(r.Context(), "tcp", address(r.Host))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		w.WriteHeader(http.StatusOK)
		from, received, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(to, received); _ = to.Close() }) // the server may have read the first bytes
		both.Go(func() { _, _ = io.Copy(from, to); _ = from.Close() })
		both.Wait()
	})
}

// release serves what a release publishes: kubectl and helm make its files in the same way as make release.
type release struct {
	t    *testing.T
	user *user
	root string
}

func (r *release) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	file, err := r.file(request.Context(), request.Host+request.URL.Path)
	if err != nil {
		r.t.Errorf("%s%s: %v", request.Host, request.URL.Path, err)
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	_, _ = w.Write(file)
}

func (r *release) file(ctx context.Context, address string) ([]byte, error) {
	const version = "v0.1.0" // of manifests/base/kustomization.yaml and of the chart
	manifests := filepath.Join(r.root, "manifests")
	if path, ok := strings.CutPrefix(address, releaseTree+version+"/"); ok {
		return os.ReadFile(filepath.Join(r.root, filepath.FromSlash(path)))
	}
	name, _ := strings.CutPrefix(address, releaseFiles+version+"/")
	if overlay, ok := strings.CutPrefix(strings.TrimSuffix(name, ".yaml"), "install-"); ok {
		return r.user.RunKubectl(ctx, nil, "kustomize", filepath.Join(manifests, "overlays", overlay))
	}
	if name == "pillion-"+strings.TrimPrefix(version, "v")+".tgz" {
		dir := r.t.TempDir()
		if shown, code, err := r.user.run(ctx, "helm package manifests/chart --destination "+dir); err != nil || code != 0 {
			return nil, fmt.Errorf("helm package: exit code %d, %w\n%s", code, err, shown)
		}
		return os.ReadFile(filepath.Join(dir, name))
	}
	return nil, errors.New("no release has this file")
}
