// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/cmd/pillion/server"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// deployed is the configuration of Pillion's pods in the cluster.
type deployed struct {
	*Client
	pod     corev1.PodSpec
	options server.Options
	found   bool // whether the Deployment exists and can be read
	guessed bool // whether the user is not allowed to read the Deployment or its configuration file
}

// ownPod returns the spec of Pillion's pods, according to the Deployment.
func (c *Client) ownPod(ctx context.Context) (corev1.PodSpec, error) {
	type deployment struct { // see apps
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	d, err := getObject[deployment](ctx, c.Resource(apps.WithResource("deployments")).Namespace(c.system), manifests.Name)
	return d.Spec.Template.Spec, err
}

// readServerConfig reads the configuration of Pillion's pods from the Deployment: flags, environment variables, and the ConfigMap that
// is mounted as the file of --config. If it cannot be read, it notes that and returns the configuration of the manifests.
func (c *Client) readServerConfig(ctx context.Context, note func(string)) (*deployed, error) {
	pod, err := c.ownPod(ctx)
	forbidden := apierrors.IsForbidden(err)
	d := &deployed{Client: c, pod: pod, found: err == nil, guessed: forbidden}
	if forbidden {
		note(fmt.Sprintf("You are not allowed to read the Deployment %s in the namespace %s, so the namespaces that it excludes are unknown, and so are templates that are not in the ConfigMap %s.",
			manifests.Name, c.system, manifests.TemplatesConfigMap))
	}
	switch {
	case forbidden, apierrors.IsNotFound(err), err == nil && len(d.pod.Containers) == 0: // Pillion may run outside of a Deployment
		d.options.Templates, d.options.Limits = []string{manifests.TemplatesPath}, kube.NewLimits()
		d.pod = corev1.PodSpec{
			Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "templates", MountPath: manifests.TemplatesPath}}}},
			Volumes: []corev1.Volume{{Name: "templates", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: manifests.TemplatesConfigMap},
			}}}},
		}
		return d, nil
	case err != nil:
		return nil, err
	}
	if i := slices.IndexFunc(d.pod.Containers, func(c corev1.Container) bool { return c.Name == manifests.Name }); i > 0 {
		d.pod.Containers[0] = d.pod.Containers[i]
	}
	cmd := &cobra.Command{}
	d.options.Flags(cmd)
	if err := d.setFlags(ctx, cmd.Flags()); apierrors.IsForbidden(err) {
		d.guessed = true
		note(fmt.Sprintf("You are not allowed to get configmaps in the namespace %s, so the configuration file of Pillion is unknown.", c.system))
	} else if err != nil {
		return nil, fmt.Errorf("the Deployment %s/%s: %w", c.system, manifests.Name, err)
	}
	return d, nil
}

// setFlags sets the flags as serve would in the pod.
func (d *deployed) setFlags(ctx context.Context, flags *pflag.FlagSet) error {
	container := d.pod.Containers[0]
	args := slices.Concat(container.Command, container.Args)
	flags.ParseErrorsAllowlist.UnknownFlags = true // from other versions
	if err := flags.Parse(args[slices.Index(args, "serve")+1:]); err != nil {
		return err
	}
	variables := map[string]string{}
	for _, v := range container.Env {
		variables[v.Name] = v.Value
	}
	return cli.ConfigureAs(flags, variables, func(path string) ([]byte, error) {
		m, key, err := d.mountedConfigMap(ctx, path)
		if err != nil {
			return nil, err
		}
		return []byte(m.Data[key]), nil
	})
}

// noTemplatesError reports that a ConfigMap that Pillion's pods mount does not exist.
type noTemplatesError string

// Error implements error.
func (e noTemplatesError) Error() string { return string(e) }

// mountedConfigMap returns the ConfigMap that is mounted in Pillion's pods at a path or above it, and the rest of the
// path, which is "" for the whole ConfigMap.
func (d *deployed) mountedConfigMap(ctx context.Context, path string) (m *corev1.ConfigMap, rest string, err error) {
	for _, mount := range d.pod.Containers[0].VolumeMounts {
		rest, below := strings.CutPrefix(strings.TrimSuffix(path, "/")+"/", strings.TrimSuffix(mount.MountPath, "/")+"/")
		k := slices.IndexFunc(d.pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if !below || k < 0 || d.pod.Volumes[k].ConfigMap == nil || len(d.pod.Volumes[k].ConfigMap.Items) > 0 || mount.SubPath != "" {
			continue
		}
		name := d.pod.Volumes[k].ConfigMap.Name
		m, err = getObject[corev1.ConfigMap](ctx, d.configMaps(d.system), name)
		if apierrors.IsNotFound(err) {
			err = noTemplatesError(fmt.Sprintf("there is no ConfigMap %s in the namespace %s; use %s--system-namespace if Pillion runs elsewhere", name, d.system, filesOr))
		}
		return m, strings.TrimSuffix(rest, "/"), err
	}
	return nil, "", fmt.Errorf("the pods of Pillion do not mount %s from a complete ConfigMap%s", path, ofFiles)
}

func (c *Client) configMaps(namespace string) dynamic.ResourceInterface {
	return c.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
}

// templateFiles returns the keys of a ConfigMap that are template files in a mounted folder.
func templateFiles(m *corev1.ConfigMap) (files []templates.File) {
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		if templates.IsFile(key) {
			files = append(files, templates.File{Path: "configmap/" + m.Name + "/" + key, Data: []byte(m.Data[key])})
		}
	}
	return files
}

// readTemplateSet returns the templates that Pillion's pods use, as far as the cluster shows. If a
// ConfigMap is invalid, some pods may still use its previous content.
func (d *deployed) readTemplateSet(ctx context.Context, wrong *unsure) (*templates.Set, error) {
	var files []templates.File
	for _, path := range d.options.Templates {
		m, key, err := d.mountedConfigMap(ctx, path)
		if apierrors.IsForbidden(err) {
			wrong.unread = true
		}
		if err := wrong.reportForbidden(err, "get", "configmaps", d.system, "the templates are unknown"); err != nil {
			return nil, err
		}
		if m == nil || err != nil {
			continue
		}
		if key != "" {
			m.Data = map[string]string{key: m.Data[key]}
		}
		files = append(files, templateFiles(m)...)
	}
	set, problems := templates.CompileValid(files...)
	for _, p := range problems {
		wrong.problems = append(wrong.problems, fmt.Sprintf("A template is invalid, so this report ignores it. Pillion keeps using its last valid templates, which may differ from all of these: %s.", cli.OneLine(problem.Problems{p})))
	}
	more, err := d.readTemplates(ctx, d.options.Limits, wrong)
	if err != nil {
		return nil, err
	}
	more = notTaken(set.Templates, more, wrong)
	joined, doubled := templates.Join(set, &templates.Set{Templates: more})
	for _, p := range doubled {
		wrong.noteIgnored(p, more)
	}
	return joined, nil
}

// noteIgnored reports a template that cannot be used together with the others. If it is a template of a namespace, that is only a note,
// because the rest of the report still holds.
func (u *unsure) noteIgnored(p problem.Problem, objects []*templates.Template) {
	text := cli.OneLine(problem.Problems{p})
	switch {
	case slices.ContainsFunc(objects, func(t *templates.Template) bool { return t.Namespace != "" && t.File == p.File }):
		u.doesNotUse(p.File, p.Path+": "+p.Message)
	case p.Path == "spec.replaces":
		u.problems = append(u.problems, fmt.Sprintf("A template cannot replace the one that it names, so Pillion ignores it: %s.", text))
	default:
		u.problems = append(u.problems, fmt.Sprintf("Two templates have the same name, so Pillion ignores this one: %s.", text))
	}
}
