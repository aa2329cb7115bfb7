// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// replicas are two Pillions, each with its own templates, behind a balancer for either webhook, as a
// Service would be. They serve one namespace, and no other Pillion serves it.
type replicas struct {
	pillions         [2]*cluster.Pillion
	folders          [2]string // of their templates
	mutate, validate *cluster.Proxy
	namespace        string
	named            atomic.Int64 // pods
	manifests        *cluster.Manifests
}

// newReplicas starts two replicas with these sets of templates.
func newReplicas(t *testing.T, sets ...string) *replicas {
	t.Helper()
	return newReplicasOf(t, env.manifests, sets)
}

// newReplicasOf is newReplicas with the entries of these manifests, and with flags.
func newReplicasOf(t *testing.T, m *cluster.Manifests, sets []string, flags ...string) *replicas {
	t.Helper()
	pair := &replicas{manifests: m}
	var endpoints []cluster.Endpoint
	for i, set := range sets {
		pair.folders[i] = t.TempDir()
		pair.publish(t, i, set)
		pillion, err := env.StartReplica(testContext(t), env.binary, pair.folders[i], flags...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := pillion.Stop(); err != nil {
				t.Errorf("pillion serve after SIGTERM: %v\n%s", err, pillion.LogTail())
			}
		})
		pair.pillions[i] = pillion
		endpoints = append(endpoints, pillion.Endpoint)
	}
	pair.mutate, pair.validate = newProxy(t, endpoints), newProxy(t, endpoints)
	pair.install(t)
	return pair
}

func newProxy(t *testing.T, endpoints []cluster.Endpoint) *cluster.Proxy {
	t.Helper()
	proxy, err := cluster.NewProxy(t.Context(), endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// install makes webhook configurations for a namespace that the shipped ones pass over, and waits until they
// are in use.
func (pair *replicas) install(t *testing.T) {
	t.Helper()
	const label = "e2e.example.com/replicas"
	ctx := testContext(t)
	id := strings.TrimSuffix(namespacePrefix(t.Name()), "-")
	pair.namespace = plainNamespace(t, withLabel(label, id), withLabel(injectLabel, "by-other-replicas"))
	manifests := pair.manifests.ForNamespaces(id, map[string]string{label: id})
	if err := env.InstallMutating(ctx, manifests, cluster.Endpoint{URL: pair.mutate.URL(), CA: env.Authority.PEM}); err != nil {
		t.Fatal(err)
	}
	if err := env.InstallValidating(ctx, manifests, cluster.Endpoint{URL: pair.validate.URL(), CA: env.Authority.PEM}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), manifests); err != nil {
			t.Error(err)
		}
	})
	err := env.WaitForWebhook(ctx, pair.namespace, func(e cluster.Event) bool {
		return len(e.Calls(id)) > 0 && e.Judgement()[finalVerdict] != ""
	})
	if err != nil {
		t.Fatal(err)
	}
}

// publish gives a replica another set of templates, all at once, as a kubelet does it with a ConfigMap.
func (pair *replicas) publish(t *testing.T, i int, set string) {
	t.Helper()
	folder := pair.folders[i]
	fatal := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	version := filepath.Join(folder, "..version-of-"+set)
	fatal(os.CopyFS(version, os.DirFS(filepath.Join("testdata", "replicas", set))))
	fatal(os.Symlink(filepath.Base(version), version+".link"))
	fatal(os.Rename(version+".link", filepath.Join(folder, "..data")))
	for _, name := range []string{"shield.yaml", "extra.yaml"} {
		path := filepath.Join(folder, name)
		switch _, err := os.Stat(filepath.Join(folder, "..data", name)); {
		case os.IsNotExist(err):
			_ = os.Remove(path)
		default:
			fatal(err)
			_ = os.Symlink(filepath.Join("..data", name), path) // may be there
		}
	}
}
