// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, row := range []struct {
		stream string
		want   []Document // without their lines
		lines  []int
	}{
		{"", []Document{{}}, []int{1}},
		{"a: 1", []Document{{Body: []byte("a: 1")}}, []int{1}},
		{"---\na: 1\n---\n", []Document{{Head: []byte("---\n"), Body: []byte("a: 1\n")}, {Head: []byte("---\n")}}, []int{2, 4}},
		{"# c\n--- # d\r\na\n", []Document{{Body: []byte("# c\n")}, {Head: []byte("--- # d\r\n"), Body: []byte("a\n")}}, []int{1, 3}},
		{"--- {a: 1}\n", []Document{{Head: []byte("---"), Body: []byte(" {a: 1}\n")}}, []int{1}},
		{"a\n...\nb\n", []Document{{Body: []byte("a\n"), Tail: []byte("...\n")}, {Body: []byte("b\n")}}, []int{1, 3}},
		{"a: |\n ---\n----\n---a\n", []Document{{Body: []byte("a: |\n ---\n----\n---a\n")}}, []int{1}},
	} {
		got := Split([]byte(row.stream))
		if len(got) != len(row.want) {
			t.Errorf("%q: %d documents: %+v", row.stream, len(got), got)
			continue
		}
		for i, d := range got {
			w := row.want[i]
			if !bytes.Equal(d.Head, w.Head) || !bytes.Equal(d.Body, w.Body) || !bytes.Equal(d.Tail, w.Tail) || d.Line != row.lines[i] {
				t.Errorf("%q: document %d is %+v", row.stream, i, d)
			}
		}
	}
}
