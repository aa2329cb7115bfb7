// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func call(configuration string, mutated bool) string {
	return fmt.Sprintf(`{"configuration":%q,"webhook":"w.example.com","mutated":%t}`, configuration, mutated)
}

func TestEventCalls(t *testing.T) {
	t.Parallel()
	event := Event{auditv1.Event{Annotations: map[string]string{
		mutationPrefix + "round_1_index_2":       call("b", false),
		mutationPrefix + "round_0_index_10":      call("c", false),
		mutationPrefix + "round_0_index_2":       call("b", true),
		patchPrefix + "round_0_index_2":          `{"configuration":"b","webhook":"w.example.com","patch":[{"op":"add"}],"patchType":"JSONPatch"}`,
		failOpenPrefix + "round_0_index_3":       "down.example.com",
		"namespace.mutate.pillion.dev/logger":    "injected: revision 0123456789ab",
		"authorization.k8s.io/decision":          "allow",
		"namespace.validate.pillion.dev/verdict": "allowed",
	}}}

	var got []string
	for _, c := range event.Calls("") {
		got = append(got, c.String())
	}
	want := []string{
		"round_0 b/w.example.com mutated=true",
		"round_0 c/w.example.com mutated=false",
		"round_1 b/w.example.com mutated=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got := len(event.Calls("b")); got != 2 {
		t.Errorf("%d calls of configuration b, want 2", got)
	}
	if got := string(event.Patch("b", "round_0")); got != `[{"op":"add"}]` {
		t.Errorf("patch is %s", got)
	}
	if got := event.Patch("b", "round_1"); got != nil {
		t.Errorf("patch of a round without one is %s", got)
	}
	if diff := cmp.Diff([]string{"down.example.com"}, event.FailedOpen()); diff != "" {
		t.Errorf("failed open (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"logger": "injected: revision 0123456789ab"}, event.Reasons()); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"verdict": "allowed"}, event.Judgement()); diff != "" {
		t.Errorf("judgement (-want +got):\n%s", diff)
	}
}

func TestEventCreatesPod(t *testing.T) {
	t.Parallel()
	event := func(verb, name, subresource, response string) Event {
		e := Event{auditv1.Event{Verb: verb, ObjectRef: &auditv1.ObjectReference{
			Resource: "pods", Namespace: "ns", Name: name, Subresource: subresource,
		}}}
		if response != "" {
			e.ResponseObject = object(response)
		}
		return e
	}
	generated := event("create", "", "", `{"kind":"Pod","metadata":{"name":"web-x1"}}`)
	denied := event("create", "", "", `{"kind":"Status","metadata":{}}`)
	denied.RequestObject = object(`{"kind":"Pod","metadata":{"generateName":"web-"}}`)
	cases := []struct {
		name  string
		event Event
		pod   string
		want  bool
	}{
		{"by name", event("create", "web", "", ""), "web", true},
		{"server-side apply", event("patch", "web", "", ""), "web", true},
		{"by the name that it got", generated, "web-x1", true},
		{"denied before it got a name", denied, "web-", true},
		{"other name", event("create", "web", "", ""), "other", false},
		{"subresource", event("create", "web", "eviction", ""), "web", false},
		{"other verb", event("delete", "web", "", ""), "web", false},
	}
	for _, c := range cases {
		if got := c.event.CreatesPod("ns", c.pod); got != c.want {
			t.Errorf("%s: CreatesPod is %t, want %t", c.name, got, c.want)
		}
	}
	if generated.CreatesPod("elsewhere", "web-x1") {
		t.Error("CreatesPod is true for another namespace")
	}
}

// TestAuditLogGrows reads the log while the API server writes it. A partial line waits for its
// rest, which never arrives if the API server was killed.
func TestAuditLogGrows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	log := &AuditLog{path: path}
	count := func() int {
		events, err := log.read()
		if err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	if got := count(); got != 0 {
		t.Errorf("%d events before there is a log", got)
	}
	const event = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":`
	for _, step := range []struct {
		text string
		want int
	}{{event + `"create"}` + "\n" + event, 1}, {`"patch"}` + "\n", 2}, {"", 2}, {event + `"cr`, 2}, {event + `"get"}` + "\n", 3}} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(step.text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != step.want {
			t.Errorf("%d events after %q, want %d", got, step.text, step.want)
		}
	}
	var verbs []string
	if err := log.Each(`"get"`, func(e Event) { verbs = append(verbs, e.Verb) }); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"get"}, verbs); diff != "" {
		t.Errorf("verbs (-want +got):\n%s", diff)
	}
}

func object(json string) *runtime.Unknown { return &runtime.Unknown{Raw: []byte(json)} }
