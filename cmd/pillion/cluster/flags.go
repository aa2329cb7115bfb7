// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pillion-dev/pillion/manifests"
)

// Flags adds the flags to a command.
func (o *Options) Flags(cmd *cobra.Command) {
	o.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "use this kubeconfig `FILE` (default: $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&o.overrides.CurrentContext, "context", "", "use this `CONTEXT` of the kubeconfig")
	f.StringVar(&o.overrides.Context.Cluster, "cluster", "", "use this `CLUSTER` of the kubeconfig")
	f.StringVar(&o.overrides.Context.AuthInfo, "user", "", "use this `USER` of the kubeconfig")
	f.StringVar(&o.overrides.AuthInfo.Impersonate, "as", "", "act as this `USER`, for example system:serviceaccount:shop:web")
	f.StringArrayVar(&o.overrides.AuthInfo.ImpersonateGroups, "as-group", nil, "with --as: act as a member of this `GROUP`; may be repeated")
	f.StringVar(&o.overrides.Timeout, "request-timeout", "", "give up a request to the API server after this `TIME`, for example 5s (default: most after 1m)")
	f.StringVar(&o.System, "system-namespace", manifests.Namespace, "look for Pillion in this `NAMESPACE`")
	for flag, complete := range map[string]cobra.CompletionFunc{
		"context":          completeKubeconfig(o, func(c *clientcmdapi.Config) map[string]*clientcmdapi.Context { return c.Contexts }),
		"cluster":          completeKubeconfig(o, func(c *clientcmdapi.Config) map[string]*clientcmdapi.Cluster { return c.Clusters }),
		"user":             completeKubeconfig(o, func(c *clientcmdapi.Config) map[string]*clientcmdapi.AuthInfo { return c.AuthInfos }),
		"system-namespace": o.CompleteNamespaces,
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the flag exists
	}
}
