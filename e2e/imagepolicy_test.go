// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// imagePolicyToken is how the API server shows the backend who it is.
const imagePolicyToken = "image-policy-token"

// imagePolicy is a backend of the admission plugin ImagePolicyWebhook.
type imagePolicy struct {
	url string

	mu      sync.Mutex
	reviews []imagepolicyv1alpha1.ImageReview
}

// newImagePolicy starts a backend that rejects the images whose tag is "rejected" and the sidecar of the template
// guard, and that is broken for the sidecar of the template echo. It allows all others.
func newImagePolicy(t *testing.T) *imagePolicy {
	t.Helper()
	p := &imagePolicy{}
	server := httptest.NewUnstartedServer(p)
	startTLS(t, server, time.Hour)
	p.url = server.URL
	return p
}

// ServeHTTP answers an ImageReview.
func (p *imagePolicy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Header.Get("Authorization") != "Bearer "+imagePolicyToken {
		http.Error(w, fmt.Sprint("no review, or not from the API server: ", err), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.reviews = append(p.reviews, review)
	p.mu.Unlock()
	review.Status.Allowed = true
	for _, c := range review.Spec.Containers {
		switch {
		case strings.HasSuffix(c.Image, ":rejected"), strings.HasPrefix(c.Image, "registry.example/guard:"):
			review.Status.Allowed, review.Status.Reason = false, c.Image+" is not signed"
		case strings.HasPrefix(c.Image, "registry.example/echo:"):
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// images returns the images of all pods in a namespace about which the API server called the backend.
func (p *imagePolicy) images(ns string) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all [][]string
	for _, review := range p.reviews {
		if review.Spec.Namespace != ns {
			continue
		}
		var images []string
		for _, c := range review.Spec.Containers {
			images = append(images, c.Image)
		}
		slices.Sort(images)
		all = append(all, images)
	}
	return all
}

// flag returns the flag of an API server whose plugin calls the backend. If the backend is broken, the plugin allows pods.
func (p *imagePolicy) flag(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "admission.yaml")
	backend := clientcmdapi.NewConfig()
	backend.Clusters["backend"] = &clientcmdapi.Cluster{Server: p.url, CertificateAuthorityData: env.Authority.PEM}
	backend.AuthInfos["apiserver"] = &clientcmdapi.AuthInfo{Token: imagePolicyToken}
	backend.Contexts["backend"] = &clientcmdapi.Context{Cluster: "backend", AuthInfo: "apiserver"}
	backend.CurrentContext = "backend"
	if err := clientcmd.WriteToFile(*backend, kubeconfig); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ImagePolicyWebhook
  configuration:
    imagePolicy: {kubeConfigFile: %q, allowTTL: -1, denyTTL: -1, retryBackoff: 1, defaultAllow: true}
`, kubeconfig)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--admission-control-config-file=" + config
}

// check checks that the backend sees the images of injected sidecars and can reject them, and that Pillion injects and judges as usual
// even if the backend is broken.
func (p *imagePolicy) check(t *testing.T, server *cluster.APIServer) {
	t.Helper()
	own := []string{"registry.example/migrate:1", "registry.example/web:1", "registry.example/worker:1"}
	for _, c := range []struct {
		name, template, image string
		edit                  func(*corev1.Pod)
		rejected              string // the backend's reason
		failedOpen            bool
	}{
		{name: "all images are good", template: "keeper", image: "registry.example/keeper"},
		{name: "sidecar rejected", template: "guard", image: "registry.example/guard:1.4.2", rejected: "registry.example/guard:1.4.2 is not signed"},
		{
			name: "app rejected", template: "keeper", image: "registry.example/keeper", rejected: "registry.example/web:rejected is not signed",
			edit: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "registry.example/web:rejected" },
		},
		{name: "backend broken", template: "echo", image: "registry.example/echo:6", failedOpen: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns, pod := optedInNamespace(t), newPod("web", requests(c.template))
			if c.edit != nil {
				c.edit(pod)
			}
			created, err := createAt(testContext(t), server, ns, pod)
			event := wantEvent(t, server, ns, pod.Name)
			if c.rejected != "" {
				if want := "image policy webhook backend denied one or more images: " + c.rejected; !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want Forbidden with %q", err, want)
				}
				// An API server without the plugin takes the same pod.
				createPod(t, ns, pod)
			} else {
				if err != nil {
					t.Fatal(err)
				}
				if findContainer(created, c.template) == nil {
					t.Errorf("%s is not injected: %v", c.template, containerNames(created.Spec.InitContainers))
				}
				if verdict := event.Judgement()[finalVerdict]; !strings.HasPrefix(verdict, allowed) {
					t.Errorf("the verdict is %q", verdict)
				}
			}
			const openKey = "imagepolicywebhook.image-policy.k8s.io/failed-open"
			if got := event.Annotations[openKey] == "true"; got != c.failedOpen {
				t.Errorf("failed open: %t, want %t", got, c.failedOpen)
			}
			want := append(slices.Clone(own), c.image)
			if c.edit != nil {
				want[1] = "registry.example/web:rejected"
			}
			slices.Sort(want)
			seen := p.images(ns)
			if len(seen) == 0 {
				t.Fatal("the backend was not asked")
			}
			for _, images := range seen { // a broken backend is asked again
				if diff := cmp.Diff(want, images); diff != "" {
					t.Errorf("images that the backend was asked about (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// wantEvent is [creation] at one of several API servers.
func wantEvent(t *testing.T, server *cluster.APIServer, ns, name string) cluster.Event {
	t.Helper()
	event, err := server.Audit.Wait(testContext(t), func(e cluster.Event) bool { return e.CreatesPod(ns, name) })
	if err != nil {
		t.Fatal(err)
	}
	return event
}
