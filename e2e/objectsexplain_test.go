// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// explain checks that kubectl explain describes the fields of a template.
func (a *authors) explain(t *testing.T) {
	var all strings.Builder
	for _, field := range []string{
		"", ".spec", ".spec.params", ".spec.params.overridableBy", ".spec.params.items", ".spec.match", ".spec.pod",
		".spec.forEachContainer", ".spec.placement.initContainers", ".spec.validate.protect", ".status.pods",
	} {
		for _, kind := range []string{"clustersidecartemplate", "sidecartemplate"} {
			if kind == "sidecartemplate" && field != "" {
				continue // the spec is the same
			}
			var out []byte
			eventually(t, "the API server has published the fields", func(ctx context.Context) (err error) {
				out, err = a.RunKubectl(ctx, nil, "explain", kind+field)
				return err
			})
			fmt.Fprintf(&all, "$ kubectl explain %s%s\n%s\n", kind, field, strings.TrimSpace(string(out)))
		}
	}
	wantGolden(t, filepath.Join("testdata", "objects", "explain.txt"), all.String())
}
