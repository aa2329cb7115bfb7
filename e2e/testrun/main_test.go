// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestShow(t *testing.T) {
	for _, row := range []struct {
		in, want string
		failed   bool
	}{
		{
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: there is no corpus\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    a_test.go:20: fine\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}`,
			want: "ok  \tp\t0.1s\nskipped: 1 tests: there is no corpus\n",
		},
		{
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			want: "    a_test.go:9: wrong\n", failed: true,
		},
		{
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: no\n"}
{"Action":"output","Package":"pq","Test":"TestB","Output":"not this\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}`,
			want: "FAIL\tp\t0.1s\npanic: no\n", failed: true,
		},
		{in: `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: no\n"}
{"ImportPath":"p","Action":"build-fail"}`, want: "x.go:1: no\n", failed: true},
		{in: "warning: not JSON", want: "warning: not JSON\n"},
	} {
		var out strings.Builder
		if failed, err := show(strings.NewReader(row.in), &out); err != nil || failed != row.failed || out.String() != row.want {
			t.Errorf("%v %v %q", failed, err, out.String())
		}
	}
}

// TestRun checks that a command that fails without an event is a failure too.
func TestRun(t *testing.T) {
	for _, command := range [][]string{nil, {"/nothing/there"}, {"go", "test", "-json", "./nothing/there"}} {
		if failed, err := run(command); !failed && err == nil {
			t.Errorf("%q passes", command)
		}
	}
}
