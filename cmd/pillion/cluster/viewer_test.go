// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestViewerCommand checks that the command for an administrator names the user, whatever the name is, and that nothing in a name
// is a command of its own.
func TestViewerCommand(t *testing.T) {
	t.Parallel()
	const begin = "kubectl create clusterrolebinding pillion-viewer-"
	for user, want := range map[string]string{
		"dev@example.com":                     begin + "dev-example-com --clusterrole=pillion-viewer --user=dev@example.com",
		"system:serviceaccount:shop:deployer": begin + "system-serviceaccount-shop-deployer --clusterrole=pillion-viewer --serviceaccount=shop:deployer",
		"a'; reboot":                          begin + `a-reboot --clusterrole=pillion-viewer --user='a'\''; reboot'`,
		"system:serviceaccount:$(reboot)":     begin + `system-serviceaccount-reboot --clusterrole=pillion-viewer --serviceaccount='$(reboot)'`,
		"":                                    begin + "NAME --clusterrole=pillion-viewer --user=USER",
		strings.Repeat("x", 300):              begin + strings.Repeat("x", 200) + " --clusterrole=pillion-viewer --user=" + strings.Repeat("x", 300),
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": user}}})
		}))
		t.Cleanup(server.Close)
		c, err := NewClient(&rest.Config{Host: server.URL}, "pillion-system")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.viewerCommand(t.Context()); got != want {
			t.Errorf("%s:\n%s, want\n%s", user, got, want)
		}
	}
}
