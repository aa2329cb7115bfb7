// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

// defaultNamespace ends the usage of every flag --namespace. The flag has the same meaning in all commands, and in kubectl.
const defaultNamespace = " (default: the kubeconfig's, or default)"

// NamespaceFlag adds --namespace to a command about one namespace. Without the flag, the value is "", for [Client.NamespaceOr]
// or [Options.NamespaceOr].
func (o *Options) NamespaceFlag(cmd *cobra.Command, namespace *string, usage string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", usage+defaultNamespace)
	_ = cmd.RegisterFlagCompletionFunc("namespace", o.CompleteNamespaces) // the flag exists
}

// NamespaceOr returns the given namespace, or the kubeconfig's if none is given. It sends no request. Without a kubeconfig, it
// returns "default".
func (o *Options) NamespaceOr(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	namespace, _, err := o.newClientConfig().Namespace()
	switch {
	case clientcmd.IsEmptyConfig(err) && !o.Selects():
		return "default", nil
	case err != nil:
		return "", noCluster(err)
	}
	return namespace, nil
}

// NamespaceFlags are the flags --namespace and --all-namespaces of a command about several namespaces.
type NamespaceFlags struct {
	named   []string
	all     bool
	implied string // the namespace of the kubeconfig, if the user named none
}

// Add adds the flags to a command. The verb begins their usage.
func (n *NamespaceFlags) Add(cmd *cobra.Command, o *Options, verb string) {
	f := cmd.Flags()
	f.StringSliceVarP(&n.named, "namespace", "n", nil, verb+" this `NAMESPACE`; may be repeated"+defaultNamespace)
	f.BoolVarP(&n.all, "all-namespaces", "A", false, verb+" all namespaces that opted in, and pods that opted in themselves, and ignore --namespace")
	_ = cmd.RegisterFlagCompletionFunc("namespace", o.CompleteNamespaces) // the flag exists
}

// Complete adds the namespaces that are arguments of a command, and checks all. With --all-namespaces, namespaces from the
// environment do not count, and arguments are an error.
func (n *NamespaceFlags) Complete(args []string) error {
	if n.all {
		n.named = nil
	}
	if n.all && len(args) > 0 {
		return fmt.Errorf("--all-namespaces cannot be used with a namespace: remove it or %s", args[0])
	}
	n.named = append(n.named, args...)
	return CheckNamespaces(n.named...)
}

// Chosen reports whether the user named namespaces, or all.
func (n *NamespaceFlags) Chosen() bool { return n.all || len(n.named) > 0 }

// Named returns the namespaces that the user named.
func (n *NamespaceFlags) Named() []string { return n.named }

// All reports whether the user chose all namespaces.
func (n *NamespaceFlags) All() bool { return n.all }

// Of returns the namespaces that the command is about, for [Query]. They are the kubeconfig's if the user named none.
func (n *NamespaceFlags) Of(c *Client) []string {
	switch {
	case n.all:
		return nil
	case len(n.named) == 0:
		n.implied = c.NamespaceOr("")
		return []string{n.implied}
	}
	return slices.Clone(n.named)
}

// Notes returns a sentence if the command is about the kubeconfig's namespace because the user named none.
func (n *NamespaceFlags) Notes() []string {
	if n.implied == "" {
		return nil
	}
	return []string{fmt.Sprintf("This is about the namespace %s, which is the kubeconfig's. To include all namespaces that opted in, use --all-namespaces.", n.implied)}
}
