// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// Say writes a string and a line break to w, folded. If w shows colors, the string has a style.
func Say(w io.Writer, style, text string) error {
	text = Fold(w, text)
	if !WantsColour(w) {
		_, err := fmt.Fprintln(w, text)
		return err
	}
	var painted strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		painted.WriteString(terminal.Text(true, style, inject.Visible(line)) + "\n")
	}
	_, err := io.WriteString(Raw(w), painted.String())
	return err
}
