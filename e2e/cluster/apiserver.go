// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// portAttempts is more than one, because another program may take a free port before the API
// server binds it.
const portAttempts = 3

// APIServer is a kube-apiserver on the Cluster's etcd. All of them serve the same objects.
type APIServer struct {
	// Config is the administrator's. Clients with it are not throttled.
	Config *rest.Config
	Client kubernetes.Interface
	// Audit is this API server's audit log of requests for pods.
	Audit *AuditLog

	process *process
}

// StartAPIServer runs another kube-apiserver, with the Cluster's flags followed by the given
// ones. It returns when the API server is ready; ctx limits only the start.
func (c *Cluster) StartAPIServer(ctx context.Context, flags ...string) (*APIServer, error) {
	var s *APIServer
	err := c.steps.Do("another kube-apiserver", func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		name := "kube-apiserver-" + shortID()
		s, err = c.runAPIServer(ctx, name, c.Config.BearerToken, flags...)
		return err
	})
	return s, err
}

// APIServer returns the Cluster's own API server.
func (c *Cluster) APIServer() *APIServer {
	return &APIServer{Config: c.Config, Client: c.Client, Audit: c.Audit, process: c.apiServer}
}

// Stop ends the API server.
func (s *APIServer) Stop() error { return s.process.stop() }

// WaitForWebhook is [Cluster.WaitForWebhook] for this API server.
func (s *APIServer) WaitForWebhook(ctx context.Context, namespace string, live func(Event) bool) error {
	return waitForWebhook(ctx, s.Client, s.Audit, namespace, live)
}

// runAPIServer starts a kube-apiserver with this name and returns when it is ready.
func (c *Cluster) runAPIServer(ctx context.Context, name, token string, flags ...string) (*APIServer, error) {
	s := &APIServer{Audit: &AuditLog{path: c.Path(name + ".audit.log")}}
	for attempt := 1; ; attempt++ {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		s.Config = c.clientConfig("https://127.0.0.1:"+port, token)
		if s.Client, err = kubernetes.NewForConfig(s.Config); err != nil {
			return nil, err
		}
		args := append(c.apiServerArgs(port, s.Audit.path), flags...)
		if s.process, err = startKubernetes(ctx, c.dir, name, c.Programs.APIServer, args...); err != nil {
			return nil, err
		}
		c.keep(s.process)
		err = s.process.waitUntil(ctx, "ready", s.ready)
		if err != nil && attempt < portAttempts && strings.Contains(s.process.tail(), "address already in use") {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, s.process.stop())
		}
		return s, nil
	}
}

// RestartAPIServer kills the Cluster's own API server and starts it again at the same address,
// so that clients with watches must reconnect. It returns when the API server is ready; ctx
// limits that.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	host, err := url.Parse(c.Config.Host)
	if err != nil {
		return err
	}
	c.apiServer.kill()
	c.apiServer, err = startKubernetes(ctx, c.dir, "kube-apiserver", c.Programs.APIServer,
		c.apiServerArgs(host.Port(), c.Audit.path)...)
	if err != nil {
		return err
	}
	c.keep(c.apiServer)
	return c.apiServer.waitUntil(ctx, "ready", c.APIServer().ready)
}

func (s *APIServer) ready(ctx context.Context) bool {
	_, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}
