// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Brief shows a value, as JSON, so that people know it again: of an item with a name or a
// path only that.
func Brief(text string) string {
	var item struct{ Name, MountPath string }
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &item) == nil {
		switch {
		case item.MountPath != "":
			return fmt.Sprintf("the mount at %s", item.MountPath)
		case item.Name != "":
			return item.Name
		}
	}
	return Cut(text, maxValue)
}

// maxValue bounds how much of a value a sentence shows.
const maxValue = 80
