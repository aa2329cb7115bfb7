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
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "use this kubeconfig `FILE` (default: $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&o.Context, "context", "", "use this `CONTEXT` of the kubeconfig")
	f.StringVar(&o.System, "system-namespace", manifests.Namespace, "look for Pillion in this `NAMESPACE`")
	if namespace != nil {
		f.StringVarP(namespace, "namespace", "n", "", "use this `NAMESPACE` (default: the kubeconfig's, or default)")
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"context": o.completeContexts, "system-namespace": o.CompleteNamespaces, "namespace": o.CompleteNamespaces,
	} {
		if f.Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists
		}
	}
}
