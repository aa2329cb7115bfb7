// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// versionLimit is how long version waits for a cluster.
const versionLimit = 3 * time.Second

// versionReport is the report of version. Its JSON is a stable format for scripts.
type versionReport struct {
	cli.Version

	Cluster  *check.Versions `json:"cluster,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
}

func newVersion() *cobra.Command {
	var where cluster.Options
	output, client := "text", false
	cmd := &cobra.Command{
		Use:         "version",
		Short:       "Print the versions of this program and of Pillion in the cluster",
		Annotations: cli.FailsIf(""),
		Long: `Version prints the version of this program, those of the replicas of Pillion in the
cluster of your kubeconfig, and that of Kubernetes. It warns if they do not fit together.
For each replica, it prints the revision of the templates that the replica renders.

It asks the replicas through the API server, which needs the right to get pods/proxy in
the namespace of Pillion. Without it, version prints the tag of the image of Pillion's
Deployment. It waits at most 3 seconds for the cluster. If there is none or if it does
not answer, version prints the reason, and the exit code is 0.

-o json and -o yaml write one object: version, revision, time, modified, go and platform
of this program, cluster (kubernetes, servers, unknown) and warnings.`,
		Example: `  pillion version
  pillion version --client
  pillion version -o json | jq -r '.cluster.servers[].version'`,
		Args: cli.NoArguments,
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			r := versionReport{Version: cli.BuildVersion()}
			if !client {
				r.readCluster(cmd.Context(), &where)
			}
			w := cmd.OutOrStdout()
			return cli.Print(w, output, r, func() string { return cli.Fold(w, r.text()) })
		}),
	}
	where.Flags(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "print only the version of this program")
	cli.OutputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}

// readCluster adds the versions of the cluster, if there is one.
func (r *versionReport) readCluster(ctx context.Context, where *cluster.Options) {
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	c, err := where.Connect()
	if err != nil {
		if where.Selects() || !errors.Is(err, cluster.ErrNoCluster) {
			r.Cluster = &check.Versions{Unknown: err.Error()}
		}
		return
	}
	r.Cluster = c.Versions(ctx)
	slices.SortFunc(r.Cluster.Servers, func(a, b check.ServerVersion) int { return strings.Compare(a.Replica, b.Replica) })
	r.Warnings = r.Cluster.Skew(r.Version.Version, r.Revision)
}

func (r *versionReport) text() string {
	var b strings.Builder
	b.WriteString(r.String() + "\n")
	if r.Cluster != nil {
		b.WriteString(r.Cluster.Text())
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", warning)
	}
	return b.String()
}
