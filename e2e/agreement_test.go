// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

// podNetwork is the network of pods, for API servers: a tunnel from the address of a pod to a process here.
type podNetwork struct {
	flag string // of API servers

	mu        sync.Mutex
	processes map[string]string
}

// newPodNetwork starts a network. Connections to other addresses than those of pods are direct.
func newPodNetwork(t *testing.T) *podNetwork {
	t.Helper()
	dir, err := os.MkdirTemp("", "pillion-net-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "socket"), filepath.Join(dir, "egress.yaml")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n" +
		"- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: " + socket + "}}}}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &podNetwork{flag: "--egress-selector-config-file=" + config, processes: map[string]string{}}
	server := &http.Server{Handler: tunnel(n.address)} //nolint:gosec // its only client is the API server
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return n
}

func (n *podNetwork) address(of string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if process := n.processes[of]; process != "" {
		return process
	}
	return of
}

// connect gives a pod an address. Connections to its admin port reach the process.
func (n *podNetwork) connect(t *testing.T, i *installed, pod, ip string, p *cluster.Pillion) {
	t.Helper()
	i.kubectl(t, "", "-n", pillionNamespace, "patch", "pod", pod, "--subresource=status",
		"-p", fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.processes[ip+":8080"] = strings.TrimPrefix(p.Admin, "http://")
}

// TestAgreement checks that pillion check compares the templates of the replicas, which it reads through the API server.
func TestAgreement(t *testing.T) {
	t.Parallel()
	needsControllerManager(t, "reports how many replicas are ready")
	network := newPodNetwork(t)
	c, err := cluster.StartPrograms(t.Context(), programs.NewSteps(os.Stderr), env.Programs, network.flag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	i := install(t, c, "self-signed")
	i.nodes(t, pillionNamespace)
	if _, err := c.StartController(t.Context(), env.binary); err != nil {
		t.Fatal(err)
	}
	i.waitForInjection(t)
	wantCheck(t, c, 0, nil, noNodes)

	var pods []string
	list, err := c.Client.CoreV1().Pods(pillionNamespace).List(testContext(t), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pillion"})
	if err != nil || len(list.Items) != 2 || list.Items[0].Status.Phase != corev1.PodRunning {
		t.Fatal(len(list.Items), err)
	}
	for k, pod := range list.Items {
		pods = append(pods, pod.Name)
		network.connect(t, i, pod.Name, fmt.Sprintf("192.0.2.%d", k+1), i.replicas[k].Pillion)
	}
	wantCheck(t, c, 0, nil)
	r, _, err := check(testContext(t), c.Kubeconfig)
	if result, text := r.of("agreement"); err != nil || result != "ok" || !strings.HasPrefix(text, "2 replicas with revision ") {
		t.Errorf("agreement is %s: %s, %v", result, text, err)
	}

	other, err := c.StartPillion(t.Context(), env.binary, filepath.Join("..", "examples", "templates"))
	if err != nil {
		t.Fatal(err)
	}
	network.connect(t, i, pods[1], "192.0.2.2", other)
	wantCheck(t, c, 1, nil, "agreement: failed: the replicas use different templates  ... : "+pods[1])
	if err := other.Stop(); err != nil {
		t.Error(err)
	}
	wantCheck(t, c, 0, nil, noNodes) // a replica that does not answer is not one that disagrees
	network.connect(t, i, pods[1], "192.0.2.2", i.replicas[1].Pillion)
	wantCheck(t, c, 0, nil)
}
