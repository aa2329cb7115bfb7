// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestGone checks that the engine stops soon after the caller no longer waits, at any point of a
// very slow pod.
func TestGone(t *testing.T) {
	var specs []string
	for i := range 10 {
		specs = append(specs, fmt.Sprintf(`validate: {mode: Deny, protect: [env]}, pod: {spec: {containers: [{name: s%[1]d, image: s}]}},
			forEachContainer: [{where: "pod.spec.containers.all(c, c.name != 'no')", add: {env: [{name: A%[1]d, value: x}]}}, {add: {env: [{name: B%[1]d, value: x}]}}]`, i))
	}
	injector := withSpecs(t, specs...)
	object := []byte(`{"metadata":{"annotations":{` + list(100_000, `"a%[1]d.pillion.dev/x":""`) + `}},"spec":{"containers":[` +
		list(350, `{"name":"c%[1]d","env":[`+list(50, `{"name":"E","value":"v"}`)+`]}`) + `]}}`)
	pod := func() *jsontree.Node {
		n, err := jsontree.Parse(object)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, work := range map[string]func(inject.Request) error{
		"inject": func(req inject.Request) error { _, err := injector.Inject(req); return err },
		"judge": func(req inject.Request) error {
			_, err := inject.NewJudge(injector, []*inject.Injector{injector, injector}, true).Judge(req)
			return err
		},
	} {
		run := func(done <-chan struct{}) (time.Duration, error) {
			req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Pod: pod(), Done: done}
			before := cpu.Used(t)
			err := work(req)
			return cpu.Used(t) - before, err
		}
		whole, err := run(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range []time.Duration{0, 4} { // the caller leaves at once, or after a quarter of the time
			done := make(chan struct{})
			leave := cpu.Used(t) + whole/max(share, 1)
			if share == 0 {
				close(done)
			} else {
				go func() {
					for cpu.Used(t) < leave {
						<-time.After(time.Millisecond) // the duration does not matter
					}
					close(done)
				}()
			}
			took, err := run(done)
			if !errors.Is(err, inject.ErrGone) {
				t.Errorf("%s: 1/%d: %v", name, share, err)
			}
			most := whole / 10
			if share > 0 {
				most += whole / share
			}
			t.Logf("%s: the caller goes after 1/%d of %v: %v", name, share, whole, took)
			if took > most {
				t.Errorf("%s: goes on for %v of %v", name, took, whole)
			}
		}
	}
}
