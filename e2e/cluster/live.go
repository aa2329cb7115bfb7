// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CallsMetric counts the API server's calls of webhooks by name, type and operation.
const CallsMetric = "apiserver_admission_webhook_request_total"

// WaitForPods returns when pods can be created in the namespace.
func (c *Cluster) WaitForPods(ctx context.Context, namespace string) error {
	return Poll(ctx, func() error { return c.hasServiceAccount(ctx, namespace) })
}

// WaitForWebhook sends dry-run creates of marker pods in the namespace until the audit event
// of one satisfies live. The API server uses a webhook configuration only some moments after
// it was stored.
func (c *Cluster) WaitForWebhook(ctx context.Context, namespace string, live func(Event) bool) error {
	return waitForWebhook(ctx, c.Client, c.Audit, namespace, live)
}

func waitForWebhook(ctx context.Context, client kubernetes.Interface, audit *AuditLog, namespace string, live func(Event) bool) error {
	n := 0
	return Poll(ctx, func() error {
		n++
		name := fmt.Sprintf("marker-%d-%s", n, shortID())
		_, createErr := client.CoreV1().Pods(namespace).Create(ctx, markerPod(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		event, err := audit.Wait(ctx, func(e Event) bool { return e.CreatesPod(namespace, name) })
		switch {
		case err != nil:
			return err
		case createErr != nil:
			return createErr
		case !live(event):
			return fmt.Errorf("the webhook is not live in %s: %v", namespace, event.Calls(""))
		}
		return nil
	})
}

// WaitForPillion returns when the API server calls both of Pillion's webhooks, and the other mutating
// configurations, for pods of the namespace.
func (c *Cluster) WaitForPillion(ctx context.Context, m *Manifests, namespace string, others ...string) error {
	return c.steps.Do("webhooks live", func() error {
		ctx, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		if err := c.WaitForPods(ctx, namespace); err != nil {
			return err
		}
		for _, configuration := range append(others, m.Mutating.Name) {
			if err := c.WaitForWebhook(ctx, namespace, Called(configuration)); err != nil {
				return err
			}
		}
		return c.waitForValidating(ctx, m, namespace)
	})
}

// Called matches requests for which a mutating configuration was called.
func Called(configuration string) func(Event) bool {
	return func(e Event) bool { return len(e.Calls(configuration)) > 0 }
}

// waitForValidating reads the API server's metrics, because the audit log does not contain
// validating webhooks.
func (c *Cluster) waitForValidating(ctx context.Context, m *Manifests, namespace string) error {
	return c.WaitForWebhook(ctx, namespace, func(Event) bool {
		metrics, err := c.Metrics(ctx)
		if err != nil {
			return false
		}
		var calls float64
		for _, w := range m.Validating.Webhooks {
			calls += metrics.Counter(CallsMetric, map[string]string{"name": w.Name, "type": "validating"})
		}
		return calls > 0
	})
}
