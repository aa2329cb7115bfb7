// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestLikenessOf checks that pods share a plan if they differ only in what no template can read when they are created, and not if a
// template can read the difference.
func TestLikenessOf(t *testing.T) {
	t.Parallel()
	const pod = `{"metadata":{"name":"web-abcde-x7k2p","generateName":"web-abcde-","uid":"1","labels":{"app":"web"}},"spec":{"nodeName":"a","hostname":"web",
		"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data"}},{"name":"kube-api-access-b2cdf","projected":{}}]},"status":{"phase":"Running","podIP":"10.0.0.1"}}`
	like := func(changes ...string) rollout.Likeness {
		t.Helper()
		of, err := rollout.LikenessOf([]byte(strings.NewReplacer(changes...).Replace(pod)))
		if err != nil {
			t.Fatal(err)
		}
		return of
	}
	for what, c := range map[string]struct {
		a, b  []string
		alike bool
	}{
		"generated names":      {a: nil, b: []string{"x7k2p", "z9q4r"}, alike: true},
		"the node":             {a: nil, b: []string{`"nodeName":"a"`, `"nodeName":"b"`}, alike: true},
		"the volume of tokens": {a: nil, b: []string{"kube-api-access-b2cdf", "kube-api-access-z9q4r"}, alike: true},
		"own names":            {a: []string{`"web-abcde-x7k2p","generateName":"web-abcde-"`, `"web-a"`}, b: []string{`"web-abcde-x7k2p","generateName":"web-abcde-"`, `"web-b"`}},
		"ordinals as names":    {a: []string{"web-abcde-x7k2p", "web-abcde-0"}, b: []string{"web-abcde-x7k2p", "web-abcde-1"}},
		"a label":              {a: nil, b: []string{`"app":"web"`, `"app":"api"`}},
		"the hostname":         {a: nil, b: []string{`"hostname":"web"`, `"hostname":"web-1"`}},
		"a claim":              {a: nil, b: []string{`"claimName":"data"`, `"claimName":"data-1"`}},
	} {
		if alike := like(c.a...) == like(c.b...); alike != c.alike {
			t.Errorf("pods that differ in %s are alike: %t", what, alike)
		}
	}
}
