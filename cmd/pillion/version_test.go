// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/manifests"
)

// runningVersions is an API with these replicas, by the build in their metrics, and after a space the revision of their templates.
func runningVersions(t *testing.T, kubernetes string, builds map[string]string) clitest.API {
	t.Helper()
	const system = "/api/v1/namespaces/pillion-system/pods"
	pods := []any{}
	api := clitest.API{"/version": map[string]any{"gitVersion": kubernetes}}
	for name, build := range builds {
		pod := thing("v1", "Pod", "pillion-system", name, nil)
		pod["status"] = map[string]any{"phase": "Running"}
		pods = append(pods, pod)
		if build, set, _ := strings.Cut(build, " "); build != "" {
			api[fmt.Sprintf("%s/%s:%d/proxy/metrics", system, name, manifests.AdminPort)] = "# HELP pillion_build_info Always 1.\npillion_build_info{go_version=\"go1.26\"," + build + "} 1\nother 3\n" + set
		} else {
			api[fmt.Sprintf("%s/%s:%d/proxy/metrics", system, name, manifests.AdminPort)] = nil // forbidden
		}
	}
	api[system] = map[string]any{"apiVersion": "v1", "kind": "PodList", "items": pods}
	deployment := thing("apps/v1", "Deployment", "pillion-system", "pillion", nil)
	deployment["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": "registry.example:5000/pillion:v0.1.0@sha256:0"}}}}}
	api[pillionPath] = deployment
	return api
}

// TestVersion checks what version prints about a cluster, and that it never fails because of one.
func TestVersion(t *testing.T) {
	t.Parallel()
	own := cli.BuildVersion()
	same := `version="` + own.Version + `",revision="` + own.Revision + `"`
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts connections, but no program answers
	must(t, err)
	t.Cleanup(func() { silent.Close() })
	noDeployment := runningVersions(t, "v1.36.2", nil)
	delete(noDeployment, pillionPath)
	for name, c := range map[string]struct {
		api   http.Handler
		args  string
		want  []string
		never string
	}{
		"same":   {runningVersions(t, "v1.36.2", map[string]string{"pillion-a": same, "pillion-b": same}), "", []string{"replica pillion-a: " + own.Version, "replica pillion-b: " + own.Version, "Kubernetes: v1.36.2"}, "Warning"},
		"skew":   {runningVersions(t, "v1.36.2", map[string]string{"pillion-a": `version="v0.0.9",revision="abc"`}), "", []string{"replica pillion-a: v0.0.9 (revision abc)", "Warning: This program is " + own.Version + ", and Pillion in the cluster is v0.0.9."}, "different versions"},
		"update": {runningVersions(t, "v1.36.2", map[string]string{"pillion-a": same, "pillion-b": `version="v0.0.9",revision="abc"`}), "", []string{"Warning: The replicas have different versions."}, "unknown"},
		"templates": {runningVersions(t, "v1.36.2", map[string]string{
			"pillion-a": same + ` pillion_templates{revision="0123456789ab",version="x"} 12`, "pillion-b": same + ` pillion_templates{revision="ba9876543210",version="x"} 12`,
		}), "", []string{"replica pillion-a: " + own.Version, ", templates of revision 0123456789ab\n", "Warning: The replicas use different templates."}, "different versions"},
		"new":        {runningVersions(t, "v1.99.0", map[string]string{"pillion-a": same}), "", []string{"Warning: Kubernetes v1.99.0 is newer than"}, ""},
		"old":        {runningVersions(t, "v1.20.0", map[string]string{"pillion-a": same}), "", []string{"Warning: Kubernetes v1.20.0 is too old"}, ""},
		"no proxy":   {runningVersions(t, "v1.36.2", map[string]string{"pillion-a": ""}), "", []string{"image of the replicas: v0.1.0", "Warning: This program is " + own.Version + ", and Pillion in the cluster is v0.1.0"}, "unknown"},
		"no rights":  {clitest.API{"/version": map[string]any{"gitVersion": "v1.36.2"}, "/api/v1/namespaces/pillion-system/pods": nil, pillionPath: nil}, "", []string{"replicas: unknown, because you are not allowed to list pods in the namespace pillion-system", "Kubernetes: v1.36.2"}, "Warning"},
		"nothing":    {noDeployment, "", []string{"replicas: unknown, because there is no Deployment pillion in the namespace pillion-system"}, "Warning"},
		"client":     {runningVersions(t, "v1.20.0", nil), "--client", nil, "ubernetes"},
		"no API":     {clitest.API{"/version": clitest.Failure{Code: http.StatusInternalServerError, Text: "broken"}}, "", []string{"cluster: unknown, because "}, "Warning"},
		"no answer":  {nil, "", []string{"cluster: unknown, because the cluster at 127.0.0.1:"}, "Warning"},
		"no cluster": {nil, "none", nil, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"version"}
			switch {
			case c.args == "none":
			case c.api == nil:
				file := filepath.Join(t.TempDir(), "kubeconfig")
				must(t, os.WriteFile(file, []byte(kubeconfigText("http://"+silent.Addr().String())), 0o600))
				args = append(args, "--kubeconfig", file, "--request-timeout", "100ms")
			default:
				args = append(append(args, strings.Fields(c.args)...), "--kubeconfig", clitest.Kubeconfig(t, c.api))
			}
			stdout, stderr, code := runWords(args...)
			if code != exitOK || stderr != "" || !strings.HasPrefix(stdout, own.String()+"\n") || c.never != "" && strings.Contains(stdout, c.never) {
				t.Errorf("exit code %d: %s%s", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("it does not print %q:\n%s", want, stdout)
				}
			}
			var report struct {
				Version  string
				Warnings []string
			}
			stdout, _, code = runWords(append(args, "-o", "json")...)
			if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOK || report.Version != own.Version || (len(report.Warnings) > 0) != strings.Contains(strings.Join(c.want, ""), "Warning: ") {
				t.Errorf("exit code %d, %v: %s", code, err, stdout)
			}
		})
	}
}
