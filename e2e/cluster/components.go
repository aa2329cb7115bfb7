// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed audit-policy.yaml
var auditPolicy []byte

func (c *Cluster) startEtcd(ctx context.Context) error {
	socket := c.Path("etcd.sock")
	p, err := startKubernetes(ctx, c.dir, "etcd", c.Programs.Etcd,
		"--data-dir", c.Path("etcd"),
		"--listen-client-urls", "unix://"+socket,
		"--advertise-client-urls", "http://127.0.0.1:0", // not used, but a socket is not accepted here
		"--listen-peer-urls", "http://127.0.0.1:0",
		"--unsafe-no-fsync",
		"--log-level", "warn")
	if err != nil {
		return err
	}
	c.keep(p)
	return p.waitUntil(ctx, "listening", func(ctx context.Context) bool {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	token := randomToken()
	if err := c.writeAPIServerFiles(token); err != nil {
		return err
	}
	server, err := c.runAPIServer(ctx, "kube-apiserver", token)
	if err != nil {
		return err
	}
	c.Config, c.Client, c.Audit, c.apiServer = server.Config, server.Client, server.Audit, server.process
	c.Kubeconfig, err = c.WriteKubeconfig("admin", token)
	return err
}

// writeAPIServerFiles writes the files that the API server reads at its start.
func (c *Cluster) writeAPIServerFiles(token string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	_, _, err = c.Authority.writeServing(c.dir, "apiserver",
		"localhost", "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	return errors.Join(err,
		os.WriteFile(c.Path("sa.key"), pemBlock("EC PRIVATE KEY", der), 0o600),
		os.WriteFile(c.Path("ca.crt"), c.Authority.PEM, 0o600),
		os.WriteFile(c.Path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`), 0o600),
		os.WriteFile(c.Path("audit-policy.yaml"), auditPolicy, 0o600))
}

func (c *Cluster) apiServerArgs(port, auditLog string) []string {
	return append([]string{
		"--etcd-servers", "unix://" + c.Path("etcd.sock"),
		"--bind-address", "127.0.0.1",
		"--secure-port", port,
		"--tls-cert-file", c.Path("apiserver.crt"),
		"--tls-private-key-file", c.Path("apiserver.key"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.Path("sa.key"),
		"--service-account-signing-key-file", c.Path("sa.key"),
		"--service-cluster-ip-range", "10.0.0.0/24",
		"--authorization-mode", "Node,RBAC",
		"--token-auth-file", c.Path("tokens.csv"),
		"--allow-privileged",
		"--enable-aggregator-routing",
		"--audit-policy-file", c.Path("audit-policy.yaml"),
		"--audit-log-path", auditLog,
		"--audit-log-mode", "blocking", // an event is in the file before its response is sent
		"--audit-log-version", "audit.k8s.io/v1",
		"--audit-log-maxsize", "100000", // MB, so that there is only one file
	}, c.flags...)
}

func (c *Cluster) startControllers(ctx context.Context) error {
	args := []string{"--kubeconfig", c.Kubeconfig}
	if !c.Programs.Subset {
		args = append(args,
			"--service-account-private-key-file", c.Path("sa.key"),
			"--root-ca-file", c.Path("ca.crt"),
			"--leader-elect=false",
			"--secure-port", "0",
			"--kube-api-qps", "500",
			"--kube-api-burst", "1000")
	}
	p, err := startKubernetes(ctx, c.dir, "controllers", c.Programs.Controllers, args...)
	if err != nil {
		return err
	}
	c.keep(p)
	return p.waitUntil(ctx, "ready", func(ctx context.Context) bool {
		return c.hasServiceAccount(ctx, metav1.NamespaceDefault) == nil
	})
}

// hasServiceAccount returns an error while pods cannot be created in the namespace.
func (c *Cluster) hasServiceAccount(ctx context.Context, namespace string) error {
	_, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the controllers have not made the ServiceAccount %s/default", namespace)
	}
	return err
}

// freePort returns a port of 127.0.0.1 that is free now. Another program may get it before it is used.
func freePort(ctx context.Context) (string, error) {
	address, err := freeAddress(ctx, "127.0.0.1")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	return port, err
}

// ownAddress returns an address at which a program can listen later. On Linux, the host is one of the many loopback addresses, at
// random, so no other program gets the port in the meantime.
func ownAddress(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" { // others have only one
		return freeAddress(ctx, "127.0.0.1")
	}
	return freeAddress(ctx, fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254)))
}

func freeAddress(ctx context.Context, host string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
