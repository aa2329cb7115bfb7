// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"reflect"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/uninject"
)

// TestUninjectHostAliases checks that names that were added for an address are removed, and those of the pod stay.
func TestUninjectHostAliases(t *testing.T) {
	t.Parallel()
	const head = "---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\n"
	injector := injectorOf(mustParse(t, head+`metadata: {name: db}
spec: {default: true, pod: {spec: {hostAliases: [{ip: 127.0.0.1, hostnames: [db.local, own.local]}]}}}
`+head+`metadata: {name: cache}
spec: {default: true, pod: {spec: {hostAliases: [{ip: 127.0.0.1, hostnames: [cache.local]}, {ip: 10.0.0.1, hostnames: [x.local]}]}}}
`))
	for _, aliases := range []string{
		"", `{"ip":"127.0.0.1","hostnames":["own.local"]}`, `{"ip":"127.0.0.1","hostnames":["mine.local"]}`,
		`{"ip":"10.0.0.2","hostnames":["db.local"]}`, `{"ip":"127.0.0.1","hostnames":["own.local","mine.local"]},{"ip":"10.0.0.1"}`,
	} {
		pod := keptBy(t, []byte(`{"spec":{"hostAliases":[`+aliases+`],"containers":[{"name":"app","image":"a"}]}}`), true)
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: pod}
		req.Object = keptBy(t, mustInject(t, injector, req).InjectedJSON(), true)
		left, err := uninject.Original(injector, req)
		if err != nil {
			t.Errorf("%s: %v", aliases, err)
			continue
		}
		was, is := decodeJSON(t, pod).(map[string]any)["spec"], decodeJSON(t, left).(map[string]any)["spec"]
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s: %s is left of %s", aliases, left, pod)
		}
	}
}
