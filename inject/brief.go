// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/templates/problem"
)

// Brief shortens a value in JSON so that users can still identify it. If an item has a name or a
// path, it returns only that.
func Brief(value JSON) string {
	text := string(value)
	var item struct{ Name, MountPath string }
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &item) == nil {
		switch {
		case item.MountPath != "":
			return fmt.Sprintf("the mount at %s", item.MountPath)
		case item.Name != "":
			return item.Name
		}
	}
	return problem.Cut(text, maxValue)
}

// maxValue is the maximum length of a value in a sentence.
const maxValue = 80
