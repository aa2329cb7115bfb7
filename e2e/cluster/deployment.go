// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wireLatency is a typical latency between two zones and a busy server.
const wireLatency = 50 * time.Millisecond

// Replica is one replica of the shipped Deployment, as a local process.
type Replica struct {
	*Pillion
	wire *wire
	pod  *replicaPod
}

// Address returns the host:port of the Service's endpoint.
func (r *Replica) Address() string { return r.wire.listener.Addr().String() }

// Accepted returns the number of connections to the Service's endpoint.
func (r *Replica) Accepted() int64 { return r.wire.accepted.Load() }

// RunDeployment simulates the nodes of a cluster for the applied Deployment. Its replicas run
// with the Deployment's arguments and further flags, with its volumes as files that follow
// their objects, and with the permissions of its ServiceAccount. When they are ready, they
// become endpoints of the applied Service. The files follow until ctx is done. The start fails
// if it takes longer than within. Then the replicas that did start are returned with the error.
func (c *Cluster) RunDeployment(ctx context.Context, binary string, within time.Duration, flags ...string) ([]*Replica, error) {
	deployment, err := c.Client.AppsV1().Deployments(c.Namespace).Get(ctx, pillionServiceAccount, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	host, err := machineAddress()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfigOf(ctx, pillionServiceAccount)
	if err != nil {
		return nil, err
	}
	replicas := make([]*Replica, *deployment.Spec.Replicas)
	err = c.steps.Do("the Deployment's replicas", func() error {
		limited, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		group, limited := errgroup.WithContext(limited)
		for i := range replicas {
			group.Go(func() (err error) {
				replicas[i], err = c.runReplica(ctx, limited, deployment, replicaOptions{binary, host, kubeconfig, flags, i})
				return err
			})
		}
		return group.Wait()
	})
	return slices.DeleteFunc(replicas, func(r *Replica) bool { return r == nil }), err
}

type replicaOptions struct {
	binary, host, kubeconfig string
	flags                    []string
	number                   int
}

// replicaPod is the part of a pod that outlives its container: its volumes and its endpoint.
type replicaPod struct {
	cluster    *Cluster
	deployment *appsv1.Deployment
	options    replicaOptions
	lifetime   context.Context // context of the Deployment
	end        context.CancelFunc
	args       []string
}

func (p *replicaPod) name() string { return fmt.Sprintf("replica-%d", p.options.number) }

// runReplica runs one pod, from its volumes to its endpoint.
func (c *Cluster) runReplica(ctx, limited context.Context, d *appsv1.Deployment, o replicaOptions) (*Replica, error) {
	spec, pod := d.Spec.Template.Spec, &replicaPod{cluster: c, deployment: d, options: o, lifetime: ctx}
	ctx, pod.end = context.WithCancel(ctx) // ends the updates of its files
	args := append(slices.Clone(spec.Containers[0].Args), "--kubeconfig="+o.kubeconfig)
	args = append(args, o.flags...)
	for _, volume := range spec.Volumes {
		dir := c.Path(filepath.Join(pod.name(), volume.Name))
		if err := c.mount(ctx, limited, volume, dir); err != nil {
			return nil, err
		}
		args = rewrite(args, mountPath(spec.Containers[0], volume.Name), dir)
	}
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "--listen="):
			args[i] = "--listen=" + net.JoinHostPort(o.host, "0")
		case strings.HasPrefix(arg, "--admin-listen="):
			args[i] = "--admin-listen=127.0.0.1:0"
		}
	}
	pod.args = args
	p, backend, err := pod.run(limited)
	if err != nil {
		return nil, err
	}
	r := &Replica{Pillion: p, pod: pod}
	if r.wire, err = newWire(limited, o.host, backend, wireLatency); err != nil {
		return nil, err
	}
	return r, c.setEndpoint(limited, pod.name(), r.Address(), true)
}

// run starts the container and returns when it is ready.
func (p *replicaPod) run(limited context.Context) (*Pillion, string, error) {
	process, err := startProcess(limited, p.cluster.dir, p.name(), p.options.binary, p.args...)
	if err != nil {
		return nil, "", err
	}
	pillion := &Pillion{process: process}
	if err := process.waitUntil(limited, "listening", func(context.Context) bool { return pillion.findAddresses() }); err != nil {
		return nil, "", errors.Join(err, process.stop())
	}
	if err := process.waitUntil(limited, "ready", pillion.ready); err != nil {
		return nil, "", errors.Join(err, process.stop())
	}
	webhook, err := url.Parse(pillion.Endpoint.URL)
	if err != nil {
		return nil, "", err
	}
	return pillion, webhook.Host, nil
}

// Crash kills the process and then acts as the kubelet: the endpoint is not ready until a new
// process in the same pod is. The context limits that.
func (r *Replica) Crash(ctx context.Context) error {
	r.process.kill()
	c, name := r.pod.cluster, r.pod.name()
	if err := c.setEndpoint(ctx, name, r.Address(), false); err != nil {
		return err
	}
	p, backend, err := r.pod.run(ctx)
	if err != nil {
		return err
	}
	r.Pillion = p
	r.wire.backend.Store(&backend)
	return c.setEndpoint(ctx, name, r.Address(), true)
}

// Replace does a rolling update of one pod. When a new pod is ready, the old endpoint is
// removed while the preStop hook runs, and then the old process is terminated. It returns the
// new replica and the old one's exit error. The context limits that.
func (r *Replica) Replace(ctx context.Context, number int) (*Replica, error) {
	options := r.pod.options
	options.number = number
	return r.replace(ctx, r.pod.deployment, options)
}

// Update does a rolling update of all pods, after the Deployment was applied again: first the new
// program replaces one pod, then the next. It returns the new replicas. The context limits that.
func (c *Cluster) Update(ctx context.Context, replicas []*Replica, binary string) ([]*Replica, error) {
	deployment, err := c.Client.AppsV1().Deployments(c.Namespace).Get(ctx, pillionServiceAccount, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	updated := make([]*Replica, len(replicas))
	for i, r := range replicas {
		options := r.pod.options
		options.binary, options.number = binary, options.number+len(replicas)
		if updated[i], err = r.replace(ctx, deployment, options); err != nil {
			return nil, err
		}
	}
	return updated, nil
}

// replace starts a new pod, and then ends this one.
func (r *Replica) replace(ctx context.Context, deployment *appsv1.Deployment, options replicaOptions) (*Replica, error) {
	next, err := r.pod.cluster.runReplica(r.pod.lifetime, ctx, deployment, options)
	if err != nil {
		return nil, err
	}
	defer r.pod.end()
	var group errgroup.Group
	group.Go(func() error {
		preStop := r.pod.deployment.Spec.Template.Spec.Containers[0].Lifecycle.PreStop.Sleep
		select {
		case <-time.After(time.Duration(preStop.Seconds) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		return r.Stop()
	})
	group.Go(func() error { return r.pod.cluster.setEndpoint(ctx, r.pod.name(), r.Address(), false) })
	return next, group.Wait()
}

// mount returns when the volume's files exist, because a pod does not start before.
func (c *Cluster) mount(ctx, limited context.Context, volume corev1.Volume, dir string) error {
	var failed <-chan error
	var err error
	switch {
	case volume.ConfigMap != nil:
		failed, err = c.project(ctx, "configmaps", &corev1.ConfigMap{}, volume.ConfigMap.Name, dir)
	case volume.Secret != nil:
		failed, err = c.project(ctx, "secrets", &corev1.Secret{}, volume.Secret.SecretName, dir)
	default:
		return os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return Poll(limited, func() error {
		select {
		case err := <-failed:
			return err
		default:
		}
		if _, err := os.Stat(filepath.Join(dir, "..data")); err != nil {
			return fmt.Errorf("the volume %s has not come: its object is missing", volume.Name)
		}
		return nil
	})
}

func mountPath(container corev1.Container, volume string) string {
	for _, m := range container.VolumeMounts {
		if m.Name == volume {
			return m.MountPath
		}
	}
	return ""
}

// rewrite replaces a path in the container by a local path.
func rewrite(args []string, path, dir string) []string {
	if path == "" {
		return args
	}
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = strings.ReplaceAll(arg, path, dir)
	}
	return out
}

// setEndpoint makes address one of the Service's, to be used if it is ready. The Service's own selector finds
// none: no node runs a pod.
func (c *Cluster) setEndpoint(ctx context.Context, name, address string, ready bool) error {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:      pillionServiceAccount + "-" + name,
			Namespace: c.Namespace,
			Labels:    map[string]string{discoveryv1.LabelServiceName: pillionServiceAccount, discoveryv1.LabelManagedBy: "pillion-e2e"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("webhook"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(port))}},
	}
	return createOrUpdate(ctx, c.Client.DiscoveryV1().EndpointSlices(c.Namespace), slice)
}

// machineAddress is an address that an EndpointSlice takes: neither loopback nor link-local.
func machineAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no IPv4 address but its loopback's, and a Service's endpoint cannot be one of these: give it a network")
}
