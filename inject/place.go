// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

func newPlace(at string, pod, fragment *tree.Node) Place {
	text := func(n *tree.Node) string {
		if n == nil {
			return "null"
		}
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(n.String())) != nil {
			return n.String()
		}
		return compact.String()
	}
	return Place{Path: at, Pod: text(pod), Template: text(fragment)}
}

func annotationPath(key string) string { return "/metadata/annotations/" + tree.Escape(key) }

func quoted(n *tree.Node) string {
	if n == nil {
		return ""
	}
	return n.String()
}

func messages(obstacles []Obstacle) string {
	all := make([]string, len(obstacles))
	for i := range obstacles {
		all[i] = obstacles[i].Message
	}
	return strings.Join(all, "; ")
}
