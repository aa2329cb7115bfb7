// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestEvents(t *testing.T) {
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
			want: "ok  \tp\t0.1s\nskipped: 1 tests: there is no corpus\n1 passed, 0 failed, 1 skipped\n",
		},
		{
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			want: "    a_test.go:9: wrong\n0 passed, 1 failed, 0 skipped\n", failed: true,
		},
		{
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"panic: no\n"}
{"Action":"output","Package":"pq","Test":"TestB","Output":"not this\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}`,
			want: "FAIL\tp\t0.1s\npanic: no\n0 passed, 0 failed, 0 skipped\n", failed: true,
		},
		{in: `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: no\n"}
{"ImportPath":"p","Action":"build-fail"}`, want: "x.go:1: no\n0 passed, 0 failed, 0 skipped\n", failed: true},
		{in: "warning: not JSON", want: "warning: not JSON\n0 passed, 0 failed, 0 skipped\n"},
		{
			in: `{"Action":"attr","Package":"p","Test":"TestA","Key":"size","Value":"20 of 500"}
{"Action":"attr","Package":"p","Test":"TestB","Key":"size","Value":"500 of 500"}
{"Action":"attr","Package":"p","Test":"TestB","Key":"other","Value":"1 of 2"}`,
			want: "quick sizes (TEST_SIZE=full runs all): TestA 20 of 500\n0 passed, 0 failed, 0 skipped\n",
		},
	} {
		var out strings.Builder
		s := newSummary(&out)
		err := s.show(strings.NewReader(row.in))
		s.print(time.Second)
		if row.want += "0 CPU seconds in 1s\n"; err != nil || s.failed != row.failed || out.String() != row.want {
			t.Errorf("%v %v\n%s\nwant\n%s", s.failed, err, out.String(), row.want)
		}
	}
}

// TestRunAll checks that a command that fails without an event is a failure too, and that the other folders are not
// left out.
func TestRunAll(t *testing.T) {
	for _, command := range [][]string{nil, {"/nothing/there"}, {"go", "test", "-json", "./nothing/there"}} {
		s := newSummary(&strings.Builder{})
		if err := s.runAll([]string{"."}, command); err == nil {
			t.Errorf("%q passes", command)
		}
	}
	var out strings.Builder
	if err := newSummary(&out).runAll([]string{"nothing-there", "."}, []string{"pwd"}); err == nil || !strings.Contains(out.String(), "testrun") {
		t.Errorf("%v, %s", err, out.String())
	}
}
