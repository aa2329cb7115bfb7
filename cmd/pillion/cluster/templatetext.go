// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// TemplateText returns the templates of the Pillion in the cluster as a YAML stream, including invalid ones: first
// the files in its ConfigMaps, then the objects.
func (c *Client) TemplateText(ctx context.Context) (string, error) {
	d, err := c.readServerConfig(ctx, func(string) {})
	if err != nil {
		return "", withoutTemplates(err)
	}
	var documents []string
	for _, path := range d.options.Templates {
		m, key, err := d.mountedConfigMap(ctx, path)
		if err != nil {
			return "", err
		}
		if m == nil {
			continue
		}
		if key != "" {
			m.Data = map[string]string{key: m.Data[key]}
		}
		for _, file := range templateFiles(m) {
			documents = append(documents, strings.TrimSuffix(string(file.Data), "\n")+"\n")
		}
	}
	objects, err := c.templateObjects(ctx)
	return strings.Join(append(documents, objects...), "---\n"), err
}

// templateObjects returns the template objects as YAML.
func (c *Client) templateObjects(ctx context.Context) (documents []string, err error) {
	for _, resource := range kube.TemplateResources() {
		list, err := c.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // this kind is not installed
		}
		if err != nil {
			return nil, NoAnswer(withoutTemplates(err))
		}
		for i := range list.Items {
			text, err := kube.TemplateText(&list.Items[i])
			if err == nil {
				text, err = yaml.JSONToYAML(text)
			}
			if err != nil {
				return nil, err
			}
			documents = append(documents, string(text))
		}
	}
	return documents, nil
}
