// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// Name is the name of the Node.
	Name = "node-1"
	// Address is the IP address of the node. Only processes in its namespaces reach it.
	Address = "172.30.0.1"

	podRange = "10.244.0.0/24"
)

// containerdConfig is version 2, which containerd 1.6 and later read. restrict_oom_score_adj is
// necessary if this process lacks CAP_SYS_RESOURCE, as in containers.
const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = %[3]q
[plugins."io.containerd.internal.v1.opt"]
path = %[4]q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[5]q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %[6]q
conf_dir = %[7]q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
`

const networkConfig = `{
"cniVersion": "1.0.0",
"name": "pods",
"plugins": [{
"type": "ptp",
"ipMasq": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]
}
`

// kubeletConfig has defaults, except for what this machine may lack (cgroup v2, systemd, no swap) and
// for evictions: how full this machine's disk is must not matter. No server is at the address for DNS.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
podLogsDir: %[3]s
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
clusterDomain: cluster.local
clusterDNS: [10.0.0.10]
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %[1]s
clientConnection: {kubeconfig: %[2]s}
clusterCIDR: %[3]s
conntrack: {maxPerCore: 0}
`

// path returns the path of a file in the folder of the node.
func (n *Node) path(names ...string) string {
	return filepath.Join(append([]string{n.dir}, names...)...)
}

func (n *Node) socket() string { return n.path("containerd.sock") }

// writeConfigs writes the configuration of the node's programs.
func (n *Node) writeConfigs() error {
	for _, dir := range []string{"cni", "kubelet", "pod-logs"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	for file, text := range map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, n.path("containerd"), n.path("containerd-state"), n.socket(),
			n.path("containerd-opt"), StandIn, cniDir, n.path("cni")),
		"cni/pods.conflist": fmt.Sprintf(networkConfig, podRange),
		"kubelet.yaml":      fmt.Sprintf(kubeletConfig, n.socket(), cgroupName(n.dir), n.path("pod-logs")),
		"kube-proxy.yaml":   fmt.Sprintf(proxyConfig, Name, n.Kubeconfig, podRange),
	} {
		if err := os.WriteFile(n.path(file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
