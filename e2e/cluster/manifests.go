// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Manifests are the objects that `kubectl apply -k` applies, with the webhook configurations
// apart.
type Manifests struct {
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Advising is for workloads. It is nil without the webhooks that warn their authors.
	Advising *admissionregistrationv1.ValidatingWebhookConfiguration
	// Rest is a YAML stream of everything else.
	Rest []byte
}

// RenderManifests builds a kustomization as kubectl does.
func RenderManifests(dir string) (*Manifests, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	rendered, err := built.AsYaml()
	if err != nil {
		return nil, err
	}
	m := &Manifests{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(rendered)))
	for {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return m, m.check()
		}
		if err != nil {
			return nil, err
		}
		if err := m.take(doc); err != nil {
			return nil, err
		}
	}
}

func (m *Manifests) take(doc []byte) error {
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return err
	}
	switch meta.Kind {
	case "MutatingWebhookConfiguration":
		return yaml.UnmarshalStrict(doc, &m.Mutating)
	case "ValidatingWebhookConfiguration":
		if meta.Name == "pillion-advise" {
			return yaml.UnmarshalStrict(doc, &m.Advising)
		}
		return yaml.UnmarshalStrict(doc, &m.Validating)
	default:
		m.Rest = append(append(m.Rest, "---\n"...), doc...)
		return nil
	}
}

func (m *Manifests) check() error {
	if m.Mutating == nil || m.Validating == nil {
		return errors.New("the manifests hold no MutatingWebhookConfiguration or no ValidatingWebhookConfiguration")
	}
	return nil
}

// ApplyRest applies everything but the webhook configurations.
func (c *Cluster) ApplyRest(ctx context.Context, m *Manifests) error { return c.Apply(ctx, m.Rest) }

// Endpoint is the address of webhooks outside the cluster.
type Endpoint struct {
	// URL has only scheme and authority. The paths come from the manifests.
	URL string
	CA  []byte
}

func (e Endpoint) clientConfig(shipped admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.WebhookClientConfig {
	url := e.URL
	if shipped.Service != nil && shipped.Service.Path != nil {
		url += *shipped.Service.Path
	}
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: e.CA}
}

// objects is the part of a typed client that createOrUpdate uses.
type objects[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

func createOrUpdate[T metav1.Object](ctx context.Context, client objects[T], object T) error {
	_, err := client.Create(ctx, object, strict())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	current, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.SetResourceVersion(current.GetResourceVersion())
	_, err = client.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// InstallMutating creates or updates the shipped configuration. It changes only its
// clientConfig.
func (c *Cluster) InstallMutating(ctx context.Context, m *Manifests, at Endpoint) error {
	config := m.Mutating.DeepCopy()
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig = at.clientConfig(config.Webhooks[i].ClientConfig)
	}
	return createOrUpdate(ctx, c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations(), config)
}

// InstallValidating is InstallMutating for the validating configuration.
func (c *Cluster) InstallValidating(ctx context.Context, m *Manifests, at Endpoint) error {
	config := m.Validating.DeepCopy()
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig = at.clientConfig(config.Webhooks[i].ClientConfig)
	}
	return createOrUpdate(ctx, c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), config)
}

// InstallAdvising is InstallMutating for the configuration for workloads. If label is not "", it is only for namespaces with
// this label.
func (c *Cluster) InstallAdvising(ctx context.Context, m *Manifests, label string, at Endpoint) error {
	config := m.Advising.DeepCopy()
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		w.ClientConfig = at.clientConfig(w.ClientConfig)
		if label != "" {
			w.NamespaceSelector.MatchExpressions = append(w.NamespaceSelector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpExists})
		}
	}
	return createOrUpdate(ctx, c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), config)
}

// ForNamespaces returns configurations with another name, for namespaces with these labels.
// They contain the entries for namespaces that opted in.
func (m *Manifests) ForNamespaces(name string, labels map[string]string) *Manifests {
	own := &Manifests{Mutating: m.Mutating.DeepCopy(), Validating: m.Validating.DeepCopy()}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	own.Mutating.Name, own.Validating.Name = name, name
	own.Mutating.Webhooks, own.Validating.Webhooks = own.Mutating.Webhooks[:1], own.Validating.Webhooks[:1]
	own.Mutating.Webhooks[0].NamespaceSelector, own.Validating.Webhooks[0].NamespaceSelector = selector, selector
	return own
}

// Uninstall deletes both configurations.
func (c *Cluster) Uninstall(ctx context.Context, m *Manifests) error {
	api := c.Client.AdmissionregistrationV1()
	return errors.Join(
		api.MutatingWebhookConfigurations().Delete(ctx, m.Mutating.Name, metav1.DeleteOptions{}),
		api.ValidatingWebhookConfigurations().Delete(ctx, m.Validating.Name, metav1.DeleteOptions{}))
}

func strict() metav1.CreateOptions {
	return metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
}
