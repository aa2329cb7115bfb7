// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// StartAdvisor is StartPillion with the flag and the permissions of the component "advise".
func (c *Cluster) StartAdvisor(ctx context.Context, component, binary string, templates ...string) (*Pillion, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if _, err := c.RunKubectl(ctx, nil, "apply", "--server-side", "--validate=strict", "-f", filepath.Join(component, "rbac.yaml")); err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfigOf(ctx, pillionServiceAccount)
	if err != nil {
		return nil, err
	}
	return c.startPillion(ctx, binary, templates, nil, "--kubeconfig", kubeconfig, "--advise")
}

// InstallAdvice installs the component's webhook configuration for the namespaces with this
// label. Apart from that, only its clientConfigs are changed.
func (c *Cluster) InstallAdvice(ctx context.Context, component, label string, at Endpoint) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	text, err := os.ReadFile(filepath.Join(component, "validatingwebhookconfiguration.yaml"))
	if err != nil {
		return nil, err
	}
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(text, config); err != nil {
		return nil, err
	}
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		w.ClientConfig = at.clientConfig(w.ClientConfig)
		w.NamespaceSelector.MatchExpressions = append(w.NamespaceSelector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpExists})
	}
	return config, createOrUpdate(ctx, c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), config)
}
