// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPublish checks that all files change at once, through one link, as those of a volume do.
func TestPublish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, data := range []map[string][]byte{
		{"a": []byte("1"), "b": []byte("1")},
		{"a": []byte("2"), "b": []byte("2")},
		{"b": []byte("3")},
	} {
		before, _ := os.Readlink(filepath.Join(dir, "..data"))
		if err := publish(dir, data); err != nil {
			t.Fatal(err)
		}
		if after, err := os.Readlink(filepath.Join(dir, "..data")); err != nil || after == before {
			t.Errorf("..data leads to %q, before to %q: %v", after, before, err)
		}
		for _, key := range []string{"a", "b"} {
			text, err := os.ReadFile(filepath.Join(dir, key))
			if want, ok := data[key]; !ok && !os.IsNotExist(err) || string(text) != string(want) {
				t.Errorf("%s is %q (%v), want %q", key, text, err, want)
			}
			if link, err := os.Readlink(filepath.Join(dir, key)); err == nil && link != filepath.Join("..data", key) {
				t.Errorf("%s leads to %q", key, link)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 { // ..data, what it leads to, and b
		t.Errorf("%v is there", entries)
	}
}
