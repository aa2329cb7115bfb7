// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WhereYAML returns the line of an error in a YAML stream, and the message, with a hint about the
// likely cause. The parameter err is the library's error. The library may report the line before the
// object with the error, so WhereYAML searches for the first line up to which parsing fails in the
// same way.
func WhereYAML(text []byte, err error) (line int, message string) {
	told, message := CutLine(strings.TrimPrefix(err.Error(), "yaml: "))
	ends, end := []int{}, 0
	for line := range bytes.Lines(text) {
		end += len(line)
		ends = append(ends, end)
	}
	first := min(max(told, 1)-1, len(ends))
	found := sort.Search(len(ends)-first, func(i int) bool {
		decoder := yaml.NewDecoder(bytes.NewReader(text[:ends[first+i]]))
		for {
			if e := decoder.Decode(new(yaml.Node)); e != nil {
				return !errors.Is(e, io.EOF) && e.Error() == err.Error()
			}
		}
	})
	line = first + found + 1
	if first+found == len(ends) {
		line = max(told, 1)
	}
	lines := strings.Split(string(text), "\n")
	return line, message + yamlHint(message, lines[:min(line, len(lines))])
}

// yamlHint returns what is probably wrong with a line that is not YAML, or "", given the library's
// message and the lines up to this one.
func yamlHint(message string, lines []string) string {
	line := lines[len(lines)-1]
	text := strings.TrimLeft(line, " \t")
	switch special := needsQuotes.FindStringSubmatch(text); {
	case strings.Contains(line[:len(line)-len(text)], "\t"):
		return "; indent with spaces, because YAML allows no tabs there"
	case special != nil:
		return fmt.Sprintf("; put the value in quotes, because it begins with %s", special[1])
	}
	indent, allowed := len(line)-len(text), possibleIndents(lines[:len(lines)-1])
	switch {
	case strings.Contains(message, " or '"): // inside brackets, indentation means nothing
	case text != "" && !slices.Contains(allowed, indent) && len(allowed) > 0:
		return fmt.Sprintf("; its indentation of %s does not fit the lines above: use %s", formatSpaces(indent), nearestIndents(allowed, indent))
	case twoColons.MatchString(text):
		return `; put a value that contains ": " in quotes`
	case strings.Count(text, "'")%2 == 1 || strings.Count(text, `"`)%2 == 1:
		return "; check the quotes in this line"
	}
	return ""
}

var (
	needsQuotes = regexp.MustCompile("(?:^|: |- )([@`%])")
	twoColons   = regexp.MustCompile(`^[^'"{\[]*: [^'"{\[]*: `)
)

// possibleIndents returns the indentations that the line after these may have, in ascending order. It returns
// none if any is possible, because the last of the lines has a key without a value.
func possibleIndents(lines []string) (stack []int) {
	last := ""
	for _, line := range lines {
		text := strings.TrimLeft(line, " ")
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		last = strings.TrimSpace(text)
		indent := len(line) - len(text)
		for len(stack) > 0 && stack[len(stack)-1] > indent {
			stack = stack[:len(stack)-1]
		}
		for {
			if len(stack) == 0 || stack[len(stack)-1] < indent {
				stack = append(stack, indent)
			}
			item, isItem := strings.CutPrefix(text, "- ")
			if !isItem {
				break
			}
			text = strings.TrimLeft(item, " ")
			indent = len(line) - len(text)
		}
	}
	if strings.HasSuffix(last, ":") || last == "-" {
		return nil
	}
	return stack
}

func formatSpaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// nearestIndents returns the indentations next to one that does not fit.
func nearestIndents(allowed []int, indent int) string {
	i, _ := slices.BinarySearch(allowed, indent)
	if i == 0 || i == len(allowed) {
		return fmt.Sprint(allowed[max(i-1, 0)])
	}
	return fmt.Sprintf("%d or %d", allowed[i-1], allowed[i])
}
