// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPictures checks that the pictures of the pages are small, load nothing, and can be read: in light and dark, by
// users who see little, and by those who hear a description. The README shows all of them.
func TestPictures(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("docs/*.svg")
	if err != nil || len(paths) < 2 {
		t.Fatalf("there are %d pictures: %v", len(paths), err)
	}
	readme := text(t, "../README.md")
	for _, path := range paths {
		svg := text(t, path)
		if len(svg) > 100_000 {
			t.Errorf("%s has %d bytes", path, len(svg))
		}
		if !regexp.MustCompile(`<img src="manifests/` + path + `"[^>]* alt="[^"]{20,}">`).MatchString(readme) {
			t.Errorf("the README does not show %s with a description", path)
		}
		for _, want := range []string{`role="img" aria-labelledby="title desc"`, `<title id="title">`, `<desc id="desc">`} {
			if !strings.Contains(svg, want) {
				t.Errorf("%s has no %s", path, want)
			}
		}
		if more := strings.Count(svg, "http"); more > 1 || regexp.MustCompile(`<script|href|@import|url\([^#]| on\w+=`).MatchString(svg) {
			t.Errorf("%s loads or runs something", path)
		}
		wellFormed(t, path, svg)
		light, dark, ok := strings.Cut(svg, "@media (prefers-color-scheme: dark)")
		if !ok {
			t.Fatalf("%s has no colors for dark", path)
		}
		colors := fills(light)
		checkContrast(t, path+", light", colors)
		maps.Copy(colors, fills(dark))
		checkContrast(t, path+", dark", colors)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func wellFormed(t *testing.T, path, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// fills returns the colors of the style sheet's rules.
func fills(css string) map[string]string {
	colors := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ *\.?(\w+) \{[^}]*fill: #([0-9a-f]{6})`).FindAllStringSubmatch(css, -1) {
		colors[m[1]] = m[2]
	}
	return colors
}

// checkContrast checks each color of words or arrows on each background: WCAG 2.2, level AA.
func checkContrast(t *testing.T, picture string, colors map[string]string) {
	t.Helper()
	backgrounds := []string{"page", "box", "own", "app", "addition"}
	for _, name := range slices.Sorted(maps.Keys(colors)) {
		for _, behind := range backgrounds {
			if back, ok := colors[behind]; ok && !slices.Contains(backgrounds, name) {
				a, b := luminance(t, colors[name]), luminance(t, back)
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
					t.Errorf("%s: %s on %s has the contrast %.2f, want 4.5", picture, name, behind, ratio)
				}
			}
		}
	}
}

// luminance returns the relative luminance of an sRGB color.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(color[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}
