// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// Shell completion with names from the cluster. If anything fails, there are no completions
// and no error message: it would appear in the middle of the user's command line.

// completionLimit is how long a shell waits for names.
const completionLimit = 2 * time.Second

// noFiles is the directive of all these completions: do not complete file names.
const noFiles = cobra.ShellCompDirectiveNoFileComp

// askNames returns what ask returns, or nothing if that takes too long. A credential plugin ignores the context, so
// ask may continue in the background.
func (o *Options) askNames(cmd *cobra.Command, ask func(context.Context, *Client) ([]string, error)) []string {
	if cli.Configure(cmd.Flags()) != nil { // cobra skips this before it completes
		return nil
	}
	kube.Quiet()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	found := make(chan []string, 1)
	go func() {
		c, err := o.Connect()
		if err != nil {
			found <- nil
			return
		}
		names, err := ask(ctx, c)
		if err != nil {
			names = nil
		}
		found <- names
	}()
	select {
	case names := <-found:
		return names
	case <-ctx.Done():
		return nil
	}
}

// namesWithPrefix returns the names that start with what was typed, without those that the command line already has
// (there). In a list with commas, it completes the last item.
func namesWithPrefix(typed string, names, there []string) []string {
	done := typed[:strings.LastIndexByte(typed, ',')+1]
	there = slices.Concat(there, strings.Split(done, ","))
	var all []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if strings.HasPrefix(name, typed[len(done):]) && !slices.Contains(there, name) {
			all = append(all, done+name)
		}
	}
	return all
}

// CompleteNamespaces completes a flag, or arguments that are all different.
func (o *Options) CompleteNamespaces(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	names := o.askNames(cmd, func(ctx context.Context, c *Client) ([]string, error) { return c.namesOf(ctx, namespaces, "") })
	return namesWithPrefix(typed, names, args), noFiles
}

// completeKubeconfig completes a name of the kubeconfig, such as a context. It needs no cluster.
func completeKubeconfig[T any](o *Options, of func(*clientcmdapi.Config) map[string]T) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		config, err := o.loadingRules().Load()
		if err != nil {
			return nil, noFiles
		}
		return namesWithPrefix(typed, slices.Collect(maps.Keys(of(config))), nil), noFiles
	}
}

// CompleteTemplateFiles completes the names of the templates in files.
func CompleteTemplateFiles(paths *[]string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		each := slices.Compact(slices.Sorted(slices.Values(*paths))) // cobra parses the flags twice
		set, err := cli.LoadTemplates(strings.NewReader(""), each)
		if err != nil {
			return nil, noFiles
		}
		return namesWithPrefix(typed, cli.TemplateNames(set), nil), noFiles
	}
}

// CompleteTemplates completes the names of the templates in files, or of those in the cluster.
func (o *Options) CompleteTemplates(paths *[]string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(*paths) > 0 {
			return CompleteTemplateFiles(paths)(cmd, args, typed)
		}
		names := o.askNames(cmd, func(ctx context.Context, c *Client) ([]string, error) {
			injector, err := c.newInjector(ctx, nil, func(string) {}, &unsure{})
			if err != nil {
				return nil, err
			}
			return cli.TemplateNames(injector.All()), nil
		})
		return namesWithPrefix(typed, names, nil), noFiles
	}
}

// CompleteTemplateObjects completes the names of the template objects of the cluster, or, after NAMESPACE/, of a namespace.
func (o *Options) CompleteTemplateObjects(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	namespace, name, ok := strings.Cut(typed, "/")
	if !ok {
		namespace, name = "", typed
	}
	names := o.askNames(cmd, func(ctx context.Context, c *Client) ([]string, error) {
		return c.namesOf(ctx, templateResource(namespace), namespace)
	})
	names = namesWithPrefix(name, names, args)
	for i := range names {
		names[i] = strings.TrimSuffix(typed, name) + names[i]
	}
	return names, noFiles
}

// CompleteObjects completes KIND/NAME, and names after a KIND. It offers objects with pods in
// a namespace.
func (o *Options) CompleteObjects(namespace *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		kind, begun, isPair := strings.Cut(typed, "/")
		there := args
		if len(args) > 0 && !strings.Contains(args[0], "/") {
			kind, begun, isPair, there = args[0], typed, false, args[1:]
		} else if !isPair {
			var kinds []string
			for _, k := range Kinds() {
				kinds = append(kinds, k.Name()+"/")
			}
			return namesWithPrefix(typed, kinds, nil), noFiles | cobra.ShellCompDirectiveNoSpace
		}
		k, err := KindOf(kind)
		if err != nil {
			return nil, noFiles
		}
		names := o.askNames(cmd, func(ctx context.Context, c *Client) ([]string, error) {
			return c.namesOf(ctx, k.Resource(), c.NamespaceOr(*namespace))
		})
		if !isPair {
			return namesWithPrefix(begun, names, there), noFiles
		}
		for i := range names {
			names[i] = kind + "/" + names[i]
		}
		return namesWithPrefix(typed, names, there), noFiles
	}
}
