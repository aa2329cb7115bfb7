// SPDX-License-Identifier: Apache-2.0

package values

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// QuantityWords is what a quantity must be, in messages.
const QuantityWords = "a quantity such as 100m or 64Mi"

// ParseQuantity is like [resource.ParseQuantity], but safe for untrusted strings. If the exponent
// has many digits, that function takes seconds to hours.
func ParseQuantity(text string) (resource.Quantity, error) {
	const long, digits = 64, 3
	if i := strings.IndexAny(text, "eE"); len(text) > long || i >= 0 && len(strings.TrimLeft(text[i+1:], "+-")) > digits {
		return resource.Quantity{}, resource.ErrFormatWrong
	}
	return resource.ParseQuantity(text)
}
