// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"strings"
	"testing"
)

// TestComputedOnAnyOS checks that computed objects of a template for any operating system have no field that a pod on one of the
// systems cannot have, as written ones.
func TestComputedOnAnyOS(t *testing.T) {
	t.Parallel()
	for context, lacks := range map[string]map[string]bool{
		`"${{'runAsUser': 5}}"`:                                     {"linux": false, "windows": true, "any": true},
		`"${{'runAsNonRoot': true}}"`:                               {"linux": false, "windows": false, "any": false},
		`{windowsOptions: "${{'hostProcess': size(ns.name) > 0}}"}`: {"linux": true, "windows": false, "any": true},
		`"${{'readOnlyRootFilesystem': size(ns.name) > 0}}"`:        {"linux": false, "windows": true, "any": true},
	} {
		for os, want := range lacks {
			text := fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {match: {os: %s},
				pod: {spec: {containers: [{name: c, image: "c:1", securityContext: %s}]}}}}`, os, context)
			found, problems := Parse("x.yaml", []byte(text))
			if len(problems) > 0 {
				t.Errorf("%s on %s: %v", context, os, problems)
				continue
			}
			in := pageInput(t)
			values, err := found[0].Values(nil, nil, &in.Namespace)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = found[0].Render(in, values); (err != nil) != want || want && !strings.Contains(err.Error(), "cannot") && !strings.Contains(err.Error(), "not") {
				t.Errorf("%s on %s: %v", context, os, err)
			}
		}
	}
}
