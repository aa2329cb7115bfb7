// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// contentForPods returns the part of a spec that pods get. A template that has replaced another one keeps its
// revision under the name of that one, and a larger share leaves the pods that have it current. How running
// pods are updated makes no difference to them.
func contentForPods(spec *jsontree.Node) *jsontree.Node {
	var nodes jsontree.Arena
	for _, key := range []string{"replaces", "share", "rollout"} {
		if spec.Get(key) != nil {
			spec = new(nodes.Without(spec, key))
		}
	}
	return spec
}

// hashCanonicalJSON returns the hash of the document as canonical JSON with sorted keys. Comments, order and
// layout do not change it.
func hashCanonicalJSON(n *jsontree.Node) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(n.AppendTo(nil)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic("templates: a checked document is no JSON: " + err.Error())
	}
	canonical, err := json.Marshal(v)
	if err != nil {
		panic("templates: a checked document is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])[:12]
}
