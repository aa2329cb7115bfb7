// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

func newDifference(at string, pod, fragment *jsontree.Node) Difference {
	return Difference{Path: at, Pod: compactJSON(pod), Template: compactJSON(fragment)}
}

func compactJSON(n *jsontree.Node) JSON {
	if n == nil {
		return "null"
	}
	var b bytes.Buffer
	if json.Compact(&b, []byte(n.String())) != nil {
		return JSON(n.String())
	}
	return JSON(b.String())
}

func joinMessages(obstacles []Obstacle) string {
	all := make([]string, len(obstacles))
	for i := range obstacles {
		all[i] = obstacles[i].Message
	}
	return strings.Join(all, "; ")
}
