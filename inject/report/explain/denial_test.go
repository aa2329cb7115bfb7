// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// TestParseDenial checks who is said to have denied a pod. The messages are those of kube-apiserver 1.37.
func TestParseDenial(t *testing.T) {
	t.Parallel()
	const call = `Internal error occurred: failed calling webhook "pod.mutate.pillion.dev": failed to call webhook: Post "https://pillion.pillion-system.svc:443/mutate?timeout=10s": `
	help := explain.Help{Kubectl: "kubectl", System: "pillion-system", Namespace: "shop"}
	for message, want := range map[string]struct {
		pillions          bool
		sentence, command string
	}{
		call + `no endpoints available for service "pillion"`:                                                                         {true, "no pod of Pillion is ready", "get deployment,pods"},
		call + `service "pillion" not found`:                                                                                          {true, "Pillion's Service does not exist", "pillion check --pre"},
		call + `tls: failed to verify certificate: x509: certificate signed by unknown authority`:                                     {true, "does not trust the certificate", "pillion certs"},
		call + `context deadline exceeded`:                                                                                            {true, "does not answer the API server in time", "logs -l"},
		call + `net/http: request canceled (Client.Timeout exceeded while awaiting headers)`:                                          {true, "does not answer the API server in time", "logs -l"},
		call + `dial tcp 10.96.0.7:443: connect: connection refused`:                                                                  {true, "cannot connect to Pillion", "get deployment,pods"},
		call + `dial tcp 10.96.0.7:443: i/o timeout`:                                                                                  {true, "does not answer the API server in time", "logs -l"},
		call + `an unexpected error`:                                                                                                  {true, "cannot call the webhook pod.mutate.pillion.dev of Pillion: an unexpected error", "pillion check"},
		`admission webhook "namespace.validate.pillion.dev" denied the request: agent: altered`:                                       {true, "denies it: agent: altered", "pillion explain -n shop"},
		`admission webhook "namespace.validate.pillion.dev" denied the request without explanation`:                                   {true, "namespace.validate.pillion.dev denies it", "pillion explain -n shop"},
		`Internal error occurred: failed calling webhook "a.other.example": failed to call webhook: Post "https://a.b.svc:443/": EOF`: {false, "a.other.example, which is not Pillion's: EOF", "get mutatingwebhookconfigurations"},
		`admission webhook "a.other.example" denied the request: no`:                                                                  {false, "the webhook a.other.example, which is not Pillion's, denies it: no", "get mutatingwebhookconfigurations"},
		`pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4`:                                  {false, "exceeded quota: q", "describe resourcequota -n shop"},
		`pods "x" is forbidden: failed quota: q: must specify limits.cpu for: app`:                                                    {false, "must specify limits.cpu", "describe resourcequota -n shop"},
		`pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged`:                                                 {false, "violates PodSecurity", "get namespace shop --show-labels"},
		`pods "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`:                                    {false, "the ValidatingAdmissionPolicy p denies it: no", "get validatingadmissionpolicy p"},
		`pods "x" is forbidden: unable to create new content in namespace shop because it is being terminated`:                        {false, "being terminated", "get namespaces"},
		`pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2`:                                                 {false, "maximum cpu usage", "describe namespace shop"},
		`pods "x" is forbidden: ValidatingAdmissionPolicy 'p; reboot' with binding 'b' denied request: no`:                            {false, "not because of Pillion", "describe namespace shop"},
		"admission webhook \"a.other.example\" denied the request: first\nsecond":                                                     {false, "denies it: first\nsecond", "get mutatingwebhookconfigurations"},
		``: {false, "denies it", "describe namespace shop"},
	} {
		got, _ := explain.ParseDenial(message, help)
		if got.Pillions != want.pillions || !strings.Contains(got.Sentence, want.sentence) || !strings.Contains(got.Command, want.command) || got.Hint == "" {
			t.Errorf("%s\n%+v", message, got)
		}
	}
}
