// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// Options are the flags that select a cluster. They have the same names as kubectl's.
type Options struct {
	cmd        *cobra.Command
	Kubeconfig string
	overrides  clientcmd.ConfigOverrides
	System     string
}

// kubectlFlags are those that kubectl has too.
var kubectlFlags = []string{"kubeconfig", "context", "cluster", "user", "as", "as-group", "request-timeout"}

// Selects reports whether a flag selects the cluster.
func (o *Options) Selects() bool {
	return len(o.givenFlags("kubeconfig", "context", "cluster", "user")) > 0
}

// givenFlags returns those of the named flags that are set, quoted for a shell.
func (o *Options) givenFlags(names ...string) (all []string) {
	for _, name := range names {
		f := o.cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			all = append(all, "--"+name+" "+cli.Quote(value))
		}
	}
	return all
}

// Kubectl returns the beginning of a kubectl command for the same cluster.
func (o *Options) Kubectl() string {
	return strings.Join(append([]string{"kubectl"}, o.givenFlags(kubectlFlags...)...), " ")
}

// Connect returns a client of the cluster that the flags select. It sends no request yet.
func (o *Options) Connect() (*Client, error) {
	if err := CheckNamespaces(o.System); err != nil {
		return nil, cli.UsageError{Err: err}
	}
	if _, err := clientcmd.ParseTimeout(o.overrides.Timeout); err != nil && o.overrides.Timeout != "" {
		return nil, cli.UsageError{Err: fmt.Errorf("--request-timeout: %q is not a time, such as 5s", o.overrides.Timeout)}
	}
	loader := o.newClientConfig()
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) && o.Kubeconfig == "" && noFileExists(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		return nil, fmt.Errorf("there is no cluster to connect to: $KUBECONFIG names %s, which does not exist", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
	if err != nil {
		return nil, noCluster(err)
	}
	config.UserAgent = "pillion/" + cli.BuildVersion().Version
	config.QPS, config.Burst = 50, 100 // kubectl's values; the API server has its own limits
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, noCluster(err)
	}
	client, err := NewClient(config, o.System)
	if err != nil {
		return nil, err
	}
	client.stdin, client.namespace = o.cmd.InOrStdin(), namespace
	return client, nil
}

// noFileExists reports whether files are named and none of them exists.
func noFileExists(list string) bool {
	files := slices.DeleteFunc(filepath.SplitList(list), func(file string) bool { return file == "" })
	return len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool {
		_, err := os.Stat(file)
		return !errors.Is(err, os.ErrNotExist)
	})
}

// ErrNoCluster is the error if no kubeconfig names a cluster.
var ErrNoCluster = errors.New("there is no cluster to connect to: use --kubeconfig FILE, and --context if the file has no current context")

// noCluster explains an error about the kubeconfig.
func noCluster(err error) error {
	switch {
	case clientcmd.IsEmptyConfig(err): // also if the context names no cluster
		return ErrNoCluster
	}
	for _, jargon := range []string{": couldn't get version/kind", ": no kind "} { // errors that mention Go types
		if text, _, ok := strings.Cut(err.Error(), jargon); ok {
			return fmt.Errorf("the kubeconfig: %s: the file is not a kubeconfig", text)
		}
	}
	return fmt.Errorf("the kubeconfig: %s", strings.TrimPrefix(cli.PlainWords(err), "invalid configuration: "))
}

// NoAnswer explains why a cluster does not answer. It returns any other error unchanged.
func NoAnswer(err error) error {
	if call, ok := errors.AsType[*url.Error](err); ok {
		if at, parseErr := url.Parse(call.URL); parseErr == nil {
			return fmt.Errorf("the cluster at %s does not answer: %w", at.Host, call.Err)
		}
	}
	if apierrors.IsUnauthorized(err) {
		return errors.New("the cluster rejects your credentials: sign in again, or check the user in the kubeconfig")
	}
	return err
}

// Commands returns the commands to suggest for the same cluster. The status command gets these
// arguments, and all commands get the template files. Rollout, which takes no files, is "" if there are some.
func (o *Options) Commands(arguments, paths []string) status.Commands {
	var files []string
	for _, path := range paths {
		files = append(files, "--templates "+cli.QuoteItem(path))
	}
	program := o.cmd.Root().CommandPath()
	flags := o.givenFlags(append(kubectlFlags, "system-namespace")...)
	join := func(parts ...[]string) string { return strings.Join(slices.Concat(parts...), " ") }
	rollout := ""
	if len(paths) == 0 {
		rollout = join([]string{program, "rollout"}, arguments, []string{"--dry-run"}, flags)
	}
	return status.Commands{
		Help:       explain.Help{Kubectl: o.Kubectl(), Pillion: o.Command, System: o.System},
		Rollout:    rollout,
		Status:     join([]string{program, "status"}, arguments, files, flags),
		Unlabelled: join([]string{program, "status", "unlabelled"}, flags),
		Explain:    join([]string{program, "explain"}, files, flags),
	}
}

// Command returns a command of this program for the same cluster, for example for "certs".
func (o *Options) Command(arguments string) string {
	return strings.Join(append([]string{o.cmd.Root().CommandPath(), arguments}, o.givenFlags(append(kubectlFlags, "system-namespace")...)...), " ")
}

// newClientConfig returns what loads the kubeconfig that the flags select.
func (o *Options) newClientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.loadingRules(), &o.overrides)
}

// loadingRules returns where to look for the kubeconfig.
func (o *Options) loadingRules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.MigrationRules = nil // they copy a file of kubectl 1.0, and nothing here writes a kubeconfig
	rules.ExplicitPath = o.Kubeconfig
	return rules
}
