// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The picture, in pixels.
const (
	lineHeight = 18
	margin     = 16
	width      = columns*78/10 + 2*margin // most monospace fonts of 13 px are 7.8 px wide
	height     = rows*lineHeight + 2*margin
)

// atEnd is how long the end is shown before the animation begins again.
const atEnd = 4 * time.Second

// look has the colors for light and dark. TestPictures checks their contrast.
const look = `    text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; fill: #1f2328 }
    .page { fill: #f6f8fa; stroke: #59636e }
    .addition { fill: #dafbe1 }
    .bold { font-weight: 700 }
    .dim { fill: #59636e }
    .red { fill: #a40e26 }
    .green { fill: #116329 }
    .yellow { fill: #7d4e00 }
    .magenta { fill: #6639ba }
    .cyan { fill: #1b5f8f }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .page { fill: #0d1117; stroke: #9198a1 }
      .addition { fill: #12261e }
      .dim { fill: #9198a1 }
      .red { fill: #ff7b72 }
      .green { fill: #3fb950 }
      .yellow { fill: #d29922 }
      .magenta { fill: #bc8cff }
      .cyan { fill: #39c5cf }
    }
`

// draw returns an animation of lines in a window. Without animation, it shows the last ones.
func draw(command string, lines []line) []byte {
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", width, height)
	fmt.Fprintf(&svg, "  <title id=\"title\">A recording of %s</title>\n", escaped(command))
	fmt.Fprintf(&svg, "  <desc id=\"desc\">The output of %s on a terminal. Waits are shortened. make recording has written this file.</desc>\n", escaped(command))
	svg.WriteString("  <style>\n" + look)
	animate(&svg, lines)
	svg.WriteString("  </style>\n")
	fmt.Fprintf(&svg, `  <rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	fmt.Fprintf(&svg, `  <svg y="%d" width="%d" height="%d"><g id="lines" xml:space="preserve">`+"\n", margin, width, height-2*margin)
	for i, l := range lines {
		drawLine(&svg, i, l)
	}
	fmt.Fprintf(&svg, `  </g><rect id="cover" class="page" x="1" width="%d" height="%d" stroke-width="0"/></svg>`+"\n</svg>\n", width-2, height)
	return svg.Bytes()
}

// animate shows each line at its time. The first lines fill the window from the top, under a cover that moves down.
// Then the lines scroll.
func animate(svg *bytes.Buffer, lines []line) {
	keyframes(svg, "lines", lines, func(shown int) int { return min(rows-shown, 0) * lineHeight })
	keyframes(svg, "cover", lines, func(shown int) int { return min(rows, shown) * lineHeight })
	svg.WriteString("    @media (prefers-reduced-motion: reduce) { #lines, #cover { animation: none } }\n")
}

// keyframes moves an element each time that the number of shown lines changes its offset.
func keyframes(svg *bytes.Buffer, id string, lines []line, offset func(shown int) int) {
	total := lines[len(lines)-1].at + atEnd
	fmt.Fprintf(svg, "    #%s { transform: translateY(%dpx); animation: %[1]s %.2[3]fs step-end infinite }\n", id, offset(len(lines)), total.Seconds())
	fmt.Fprintf(svg, "    @keyframes %s {\n", id)
	for i, l := range lines {
		if i == 0 || offset(i) != offset(i+1) {
			fmt.Fprintf(svg, "      %.3f%% { transform: translateY(%dpx) }\n", 100*l.at.Seconds()/total.Seconds(), offset(i+1))
		}
	}
	svg.WriteString("    }\n")
}

func drawLine(svg *bytes.Buffer, i int, l line) {
	if len(l.spans) == 0 {
		return
	}
	if isAddition(l) {
		fmt.Fprintf(svg, `<rect class="addition" x="1" y="%d" width="%d" height="%d"/>`, i*lineHeight, width-2, lineHeight)
	}
	fmt.Fprintf(svg, `<text x="%d" y="%d">`, margin, (i+1)*lineHeight-5)
	for _, s := range l.spans {
		if s.style == "" {
			svg.WriteString(escaped(s.text))
			continue
		}
		fmt.Fprintf(svg, `<tspan class="%s">%s</tspan>`, s.style, escaped(s.text))
	}
	svg.WriteString("</text>\n")
}

// isAddition reports whether a line is an added one of a diff. It has a background, as in other diffs.
func isAddition(l line) bool {
	text := strings.TrimLeft(l.text(), " ")
	return strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "+++") &&
		slices.ContainsFunc(l.spans, func(s span) bool { return strings.Contains(s.style, "green") })
}

func escaped(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer gives no error
	return out.String()
}
