// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"bytes"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the golden files")

// Fonts differ from machine to machine, so a screenshot is compared by the mean colors of squares. Text that is a
// little wider changes these little; a missing part, or the wrong colors, change many of them much.
const (
	square    = 40   // pixels
	tolerance = 40   // of a mean, of 255
	most      = 0.08 // share of the squares that may differ more
)

// TestScreenshots compares screenshots in light and dark with testdata/NAME.png. If they differ, the new one is in
// testdata/NAME.new.png.
func TestScreenshots(t *testing.T) {
	for _, name := range []string{"light", "dark"} {
		p := open(t, chromedp.EmulateViewport(1280, 1100), scheme(name)).evaluated()
		p.wait("document.body.dataset.hinted > 0")
		p.run(do("document.fonts.ready.then(() => { document.getElementById('status').textContent = ''; document.activeElement.blur(); })"))
		shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name+".png")
		if *update {
			if err := os.WriteFile(golden, shot, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if share := differ(t, want, shot); share > most {
			t.Errorf("%s: %.0f %% of the picture differ", golden, share*100)
			if err := os.WriteFile(filepath.Join("testdata", name+".new.png"), shot, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDiffer checks that the comparison sees the wrong colors.
func TestDiffer(t *testing.T) {
	light, err := os.ReadFile("testdata/light.png")
	if err != nil {
		t.Fatal(err)
	}
	dark, err := os.ReadFile("testdata/dark.png")
	if err != nil {
		t.Fatal(err)
	}
	if same, other := differ(t, light, light), differ(t, light, dark); same != 0 || other < 0.5 {
		t.Errorf("a picture differs from itself by %v, and light from dark by %v", same, other)
	}
}

// differ returns the share of squares whose means differ.
func differ(t *testing.T, a, b []byte) float64 {
	t.Helper()
	one, other := decode(t, a), decode(t, b)
	size := one.Bounds().Union(other.Bounds()).Size()
	all, differs := 0, 0
	for x := 0; x+square <= size.X; x += square {
		for y := 0; y+square <= size.Y; y += square {
			all++
			m, n := mean(one, x, y), mean(other, x, y)
			if max(m[0]-n[0], n[0]-m[0], m[1]-n[1], n[1]-m[1], m[2]-n[2], n[2]-m[2]) > tolerance {
				differs++
			}
		}
	}
	return float64(differs) / float64(max(all, 1))
}

func decode(t *testing.T, data []byte) image.Image {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// mean returns the mean color of a square.
func mean(img image.Image, x, y int) (of [3]int) {
	for i := range square {
		for j := range square {
			r, g, b, _ := img.At(x+i, y+j).RGBA()
			of[0], of[1], of[2] = of[0]+int(r>>8), of[1]+int(g>>8), of[2]+int(b>>8)
		}
	}
	for i := range of {
		of[i] /= square * square
	}
	return of
}
