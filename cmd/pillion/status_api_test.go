// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/report/status"
)

// pagedAPI is a Kubernetes API with a made-up cluster. It creates the objects of a page when the
// page is requested, so that only the caller holds them.
type pagedAPI struct {
	objects   map[string]any                        // by path
	lists     map[string]func(i int) map[string]any // path to the i-th object
	length    map[string]int                        // of a list
	forbids   map[string]int                        // path to how often
	expires   map[string]int                        // path to how often a token is too old
	onPage    func(path string, r *http.Request)    // before a page is answered
	mu        sync.Mutex
	asked     map[string]int // requests by path
	file      string         // the last kubeconfig
	namespace string         // of its context
}

func (a *pagedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	if selector := r.URL.Query().Get("labelSelector"); selector != "" {
		path += "?" + selector
	}
	a.asked[path]++
	item, isList := a.lists[path]
	object, ok := a.objects[path]
	token := r.URL.Query().Get("continue")
	switch {
	case a.forbids[path] > 0:
		a.forbids[path]--
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case token != "" && a.expires[path] > 0:
		a.expires[path]--
		fail(w, http.StatusGone, metav1.StatusReasonExpired)
	case isList:
		if a.onPage != nil {
			a.onPage(path, r)
		}
		_ = json.NewEncoder(w).Encode(page(r, item, a.length[path]))
	case ok:
		_ = json.NewEncoder(w).Encode(object)
	case strings.HasPrefix(path, "/api/v1/pods"), strings.HasPrefix(path, allSets), strings.HasSuffix(r.URL.Path, "s") && !strings.Contains(path, "mutatingadmission") && !strings.Contains(path, "/configmaps/"):
		_ = json.NewEncoder(w).Encode(page(r, nil, 0))
	default:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason, Message: string(reason)})
}

func page(r *http.Request, item func(int) map[string]any, length int) map[string]any {
	begin, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	end, meta := length, map[string]any{}
	if limit > 0 && begin+limit < length {
		end = begin + limit
		meta["continue"] = strconv.Itoa(end)
	}
	items := []any{}
	for i := begin; i < end; i++ {
		items = append(items, item(i))
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "metadata": meta, "items": items}
}

const (
	webhooksPath    = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	shopPods        = "/api/v1/namespaces/shop/pods"
	shopSets        = "/apis/apps/v1/namespaces/shop/replicasets"
	shopDeployments = "/apis/apps/v1/namespaces/shop/deployments"
	readySlices     = "/apis/discovery.k8s.io/v1/namespaces/pillion-system/endpointslices?kubernetes.io/service-name=pillion"
	allSets         = "/apis/apps/v1/replicasets"
	optedInPods     = "/api/v1/pods?pillion.dev/inject,pillion.dev/inject!=disabled"
)

func thing(apiVersion, kind, namespace, name string, more map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	object := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	if labels, ok := more["labels"]; ok {
		metadata["labels"] = labels
	}
	if owner, ok := more["owner"].([]string); ok {
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": owner[0], "kind": owner[1], "name": owner[2], "uid": "u", "controller": true}}
	}
	return object
}

// barePod is the i-th pod of a namespace; ten pods of a Deployment each.
func barePod(namespace string, i int) map[string]any {
	pod := thing("v1", "Pod", namespace, fmt.Sprintf("web-%d-%d", i/10, i), map[string]any{
		"labels": map[string]any{"pod-template-hash": "5f7"},
		"owner":  []string{"apps/v1", "ReplicaSet", fmt.Sprintf("web-%d-5f7", i/10)},
	})
	pod["spec"] = map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1", "env": []any{map[string]any{"name": "PAD", "value": strings.Repeat("x", 1000)}}}}}
	return pod
}

// newPagedAPI has the namespaces shop, quiet (not opted in), off, trial (shadowed) and typo (neither), and Pillion.
func newPagedAPI(pods int) *pagedAPI {
	namespaces := []map[string]any{
		thing("v1", "Namespace", "", "shop", map[string]any{"labels": map[string]any{"pillion.dev/inject": "enabled"}}),
		thing("v1", "Namespace", "", "quiet", nil),
		thing("v1", "Namespace", "", "off", map[string]any{"labels": map[string]any{"pillion.dev/inject": "disabled"}}),
		thing("v1", "Namespace", "", "trial", map[string]any{"labels": map[string]any{"pillion.dev/inject": "shadow"}}),
		thing("v1", "Namespace", "", "typo", map[string]any{"labels": map[string]any{"pillion.dev/inject": "enable"}}),
	}
	var webhooks map[string]any
	if text, err := os.ReadFile("../../manifests/base/70-mutatingwebhookconfiguration.yaml"); err != nil || yaml.Unmarshal(text, &webhooks) != nil {
		panic("the manifests cannot be read")
	}
	config := thing("v1", "ConfigMap", "pillion-system", "pillion-templates", nil)
	config["data"] = map[string]any{"agent.yaml": agentTemplate}
	a := &pagedAPI{
		objects: map[string]any{
			"/api/v1/namespaces/pillion-system/configmaps/pillion-templates": config,
			webhooksPath + "/pillion": webhooks,
		},
		lists: map[string]func(int) map[string]any{
			"/api/v1/namespaces": func(i int) map[string]any { return namespaces[i] },
			webhooksPath:         func(int) map[string]any { return webhooks },
			shopDeployments: func(i int) map[string]any {
				web := thing("apps/v1", "Deployment", "shop", fmt.Sprintf("web-%d", i), nil)
				web["spec"] = map[string]any{"template": map[string]any{"spec": barePod("shop", i)["spec"]}}
				return web
			},
			readySlices: func(int) map[string]any {
				slice := thing("discovery.k8s.io/v1", "EndpointSlice", "pillion-system", "a", nil)
				slice["endpoints"] = []any{map[string]any{"addresses": []any{"10.0.0.2"}}}
				return slice
			},
			shopPods:                        func(i int) map[string]any { return barePod("shop", i) },
			"/api/v1/namespaces/trial/pods": func(i int) map[string]any { return barePod("trial", i) },
			shopSets: func(i int) map[string]any {
				return thing("apps/v1", "ReplicaSet", "shop", fmt.Sprintf("web-%d-5f7", i), map[string]any{"owner": []string{"apps/v1", "Deployment", fmt.Sprintf("web-%d", i)}})
			},
			optedInPods: func(i int) map[string]any {
				pod := barePod([]string{"quiet", "off", "shop"}[i], i)
				pod["metadata"].(map[string]any)["labels"] = map[string]any{"pillion.dev/inject": "enabled"}
				return pod
			},
		},
		length:  map[string]int{"/api/v1/namespaces": len(namespaces), "/api/v1/namespaces/trial/pods": 3, webhooksPath: 1, shopPods: pods, shopSets: (pods + 9) / 10, shopDeployments: (pods + 9) / 10, readySlices: 1, optedInPods: 3},
		forbids: map[string]int{}, expires: map[string]int{}, asked: map[string]int{},
	}
	for _, ns := range namespaces {
		a.objects["/api/v1/namespaces/"+ns["metadata"].(map[string]any)["name"].(string)] = ns
	}
	return a
}

// status runs the command against the API.
func (a *pagedAPI) status(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(append([]string{"status", "--kubeconfig", a.kubeconfig(t)}, args...), nil, &out, &errs)
	return code, out.String(), errs.String()
}

func (a *pagedAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, []byte(strings.Replace(kubeconfigText(server.URL), "user: u}", "user: u, namespace: \""+a.namespace+"\"}", 1)), 0o600))
	a.file = file
	return file
}

// kubeconfigText is a kubeconfig with one context, c.
func kubeconfigText(server string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, server)
}

func (a *pagedAPI) report(t *testing.T, args ...string) (r status.Report, code int) {
	t.Helper()
	code, stdout, stderr := a.status(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	return r, code
}
