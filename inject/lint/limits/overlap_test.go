// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestOverlap checks that lint warns about containers of templates that may have the same name.
func TestOverlap(t *testing.T) {
	t.Parallel()
	const head = "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: NAME}, spec: {pod: {spec: {containers: ["
	file := func(name, container string) templates.File {
		return templates.File{Path: name, Data: []byte(strings.ReplaceAll(head, "NAME", name) + container + "]}}}}")}
	}
	for other, want := range map[string]string{
		"{name: cache-x, image: i}":                              "cache-x",
		`{"${forEach}": {m: "['x']"}, name: "${m}-x", image: i}`: "*-x",
		"{name: log, image: i}":                                  "",
	} {
		set, err := templates.Compile(file("cache", `{"${forEach}": {m: "['a', 'b']"}, name: "cache-${m}", image: i}`), file("other", other))
		if err != nil {
			t.Fatal(err)
		}
		hints := strings.Join(evaluator(t).Try(set, nil)[0].Hints, " ")
		if strings.Contains(hints, "a container cache-* may have the name of the container "+want+" of the template other") != (want != "") {
			t.Errorf("%s: %s", other, hints)
		}
	}
}
