// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// auditCount is a count of `pillion audit -o json`, except for its namespace.
type auditCount struct {
	Webhook, About, Reason string
	Requests               int
	Example                string
}

// TestAudit checks that `pillion audit` counts in the API server's log what happened in four namespaces:
// one without special events; one that is only shadowed; one in which another webhook strips the sidecar
// once, or always; and one without an answer.
func TestAudit(t *testing.T) {
	t.Parallel()
	well, fought, open := optedInNamespace(t), optedInNamespace(t), plainNamespace(t, withLabel("e2e.example.com/audit", "open"))
	createPod(t, well, newPod("one"))
	createPod(t, well, newPod("two"))
	createPod(t, well, newPod("without", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }))
	shadowed := shadowedNamespace(t)
	createPod(t, shadowed, newPod("told"))
	dryRun(t, well, newPod("dry")) // counts nowhere

	only := func(name string, mutate testwebhook.Mutate) testwebhook.Mutate {
		return func(p *corev1.Pod) []testwebhook.Operation {
			if p.Name != name {
				return nil
			}
			return mutate(p)
		}
	}
	strip := testwebhook.Strip("logger", "") // the restartPolicy alone: the same patch each time
	installWebhook(t, fought, "y", testwebhook.Webhook{Reinvocation: never, Mutate: only("repaired", strip)})
	fighter := installWebhook(t, fought, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: only("lost", strip)})
	for _, name := range []string{"first", "repaired", "lost"} {
		createPod(t, fought, newPod(name))
	}

	away := env.manifests.ForNamespaces("audit-away", map[string]string{"e2e.example.com/audit": "open"})
	if err := env.InstallMutating(testContext(t), away, nowhere()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		api := env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		if err := api.Delete(cleanupContext(), away.Mutating.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	waitLive(t, open, func(e cluster.Event) bool { return len(e.FailedOpen()) > 0 })
	createPod(t, open, newPod("unseen"))
	for ns, last := range map[string]string{well: "without", fought: "lost", open: "unseen", shadowed: "told"} {
		creation(t, ns, last) // is in the log
	}

	again := fighter + "/test.e2e.example.com"
	got := audited(t)
	for ns, want := range map[string]map[string][]auditCount{
		well: {},
		fought: {
			"secondRounds": {{"pillion/namespace.mutate.pillion.dev", "", "", 2, "repaired"}, {again, "", "", 1, "lost"}},
			"loops":        {{again, "", "", 1, "lost"}},
		},
		open: {"failedOpen": {{"namespace.mutate.pillion.dev", "", "", 1, "unseen"}}},
	} {
		for _, list := range []string{"secondRounds", "loops", "failedOpen"} {
			if diff := cmp.Diff(want[list], got[list][ns]); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", list, ns, diff)
			}
		}
	}
	has := func(ns string, want ...auditCount) {
		t.Helper()
		var of []auditCount
		for _, c := range got["decisions"][ns] {
			if c.About == "logger" || c.About == finalVerdict {
				of = append(of, c)
			}
		}
		if diff := cmp.Diff(want, of); diff != "" {
			t.Errorf("decisions of %s (-want +got):\n%s", ns, diff)
		}
	}
	has(well,
		auditCount{"namespace.mutate.pillion.dev", "logger", "injected", 2, "one"},
		auditCount{"namespace.mutate.pillion.dev", "logger", "pod_opted_out", 1, "without"},
		auditCount{"namespace.validate.pillion.dev", finalVerdict, "allowed", 3, "one"})
	has(fought,
		auditCount{"namespace.mutate.pillion.dev", "logger", "injected", 3, "first"},
		auditCount{"namespace.validate.pillion.dev", finalVerdict, "allowed", 2, "first"},
		auditCount{"namespace.validate.pillion.dev", finalVerdict, "warned", 1, "lost"},
		auditCount{"namespace.validate.pillion.dev", "logger", "missing", 1, "lost"})
	has(shadowed,
		auditCount{"namespace.shadow.pillion.dev", finalVerdict, "allowed", 1, "told"},
		auditCount{"namespace.shadow.pillion.dev", "logger", "injected", 1, "told"})
	has(open)
}

// audited runs the command over the API server's log. Its counts, by list and namespace.
func audited(t *testing.T) map[string]map[string][]auditCount {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), env.binary, "audit", "-o", "json", env.Path("kube-apiserver.audit.log")).Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("pillion audit: %v, want exit code 1\n%s", err, out)
	}
	var report map[string]json.RawMessage
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	lists := map[string]map[string][]auditCount{}
	for _, name := range []string{"decisions", "secondRounds", "loops", "failedOpen"} {
		var counts []struct {
			Namespace string
			auditCount
		}
		if err := json.Unmarshal(report[name], &counts); err != nil {
			t.Fatal(err)
		}
		lists[name] = map[string][]auditCount{}
		for _, c := range counts {
			lists[name][c.Namespace] = append(lists[name][c.Namespace], c.auditCount)
		}
	}
	return lists
}
