// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// TestLintServer checks that lint reports, for each template, whether the API server accepts a pod
// with it, or that it did not call the API server.
func TestLintServer(t *testing.T) {
	t.Parallel()
	const all = `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {pod: {spec: {containers: [{name: a, image: a}]}}}}
---
{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: b},
  spec: {match: {condition: "pod.spec.containers.size() % 2 == 7"}, pod: {spec: {containers: [{name: b, image: b}]}}}}
`
	const one = "\n---\n"
	for name, c := range map[string]struct {
		templates string
		answer    error
		code      int
		want      []string
	}{
		"taken":     {all[:strings.Index(all, one)], nil, exitOK, []string{"a: the API server accepts a pod with it"}},
		"not asked": {all, nil, exitProblem, []string{"a: the API server accepts a pod with it", "b: the API server got no pod with it"}},
		"rejected": {
			all[:strings.Index(all, one)], apierrors.NewForbidden(corev1.Resource("pods"), "pillion-lint-", errors.New("too large")), exitProblem,
			[]string{`a: problem: the API server rejects a pod with it: pods "pillion-lint-" is forbidden: too large`},
		},
		"no right": {
			strings.ReplaceAll(all, " % 2 == 7", " * 0 == 0"), apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New(`User "u" cannot create`)), exitProblem,
			[]string{"pillion: --server needs the right to create pods in the namespace shop, even for a dry run: ask for"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kubeconfig := clitest.Kubeconfig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer := clitest.Named(corev1.Pod{})
				if status, ok := errors.AsType[*apierrors.StatusError](c.answer); ok {
					w.WriteHeader(int(status.ErrStatus.Code))
					status.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
					answer = status.ErrStatus
				}
				if r.Method != http.MethodPost || r.URL.Query().Get("dryRun") != metav1.DryRunAll {
					t.Errorf("%s %s is no dry run", r.Method, r.URL)
				}
				_ = json.NewEncoder(w).Encode(answer)
			}))
			var out bytes.Buffer
			if code := run([]string{"lint", "-", "--server", "-n", "shop", "--kubeconfig", kubeconfig}, strings.NewReader(c.templates), &out, &out); code != c.code {
				t.Errorf("the exit code is %d, not %d", code, c.code)
			}
			for _, want := range c.want {
				if strings.Count(out.String(), want) != 1 {
					t.Errorf("%s\nwant once %s", &out, want)
				}
			}
		})
	}
}
