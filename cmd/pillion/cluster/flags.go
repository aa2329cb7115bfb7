// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/manifests"
)

// Flags adds the flags to a command, and --namespace if namespace is not nil.
func (o *Options) Flags(cmd *cobra.Command, namespace *string) {
	o.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "the `FILE` that says how to reach the cluster (default: $KUBECONFIG, or the one in your home)")
	f.StringVar(&o.Context, "context", "", "the kubeconfig's `CONTEXT`")
	f.StringVar(&o.System, "system-namespace", manifests.Namespace, "the `NAMESPACE` that Pillion runs in")
	if namespace != nil {
		f.StringVarP(namespace, "namespace", "n", "", "the `NAMESPACE` (default: the kubeconfig's, or default)")
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"context": o.completeContexts, "system-namespace": o.CompleteNamespaces, "namespace": o.CompleteNamespaces,
	} {
		if f.Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // of a flag that is there
		}
	}
}
