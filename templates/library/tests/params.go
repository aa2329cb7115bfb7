// SPDX-License-Identifier: Apache-2.0

// Package tests contains the tests of the library's templates. Tests of other packages get from it
// the values of the parameters that have no default.
package tests

import (
	"embed"
	"io/fs"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed *_test.yaml
var files embed.FS

// Params returns a value for each parameter without a default, by the annotation that sets it. They
// are the values of the pods in the test files.
func Params() map[string]string {
	values := map[string]string{}
	names, err := fs.Glob(files, "*")
	if err != nil {
		panic("tests: " + err.Error())
	}
	for _, name := range names {
		var suite struct {
			Pod struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		data, err := files.ReadFile(name)
		if err == nil {
			err = yaml.Unmarshal(data, &suite)
		}
		if err != nil {
			panic("tests: " + name + ": " + err.Error())
		}
		for key, value := range suite.Pod.Metadata.Annotations {
			if !strings.HasPrefix(key, "pillion.dev/") {
				values[key] = value
			}
		}
	}
	return values
}
