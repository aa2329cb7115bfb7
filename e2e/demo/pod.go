// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const podWithin = 30 * time.Second

// showPod creates a Deployment and shows its pod.
func (d *demo) showPod(ctx context.Context) (injected bool, err error) {
	var pod *corev1.Pod
	var event cluster.Event
	err = d.steps.Do("e2e/demo/deployment.yaml applied, and its pod made", func() (err error) {
		pod, event, err = d.deploy(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	injected = len(event.Patch(d.manifests.Mutating.Name, "round_0")) > 0
	if !injected {
		d.screen.heading("1. The pod is as its Deployment made it, for no template is for it")
	} else if err := d.showChange(pod, event); err != nil {
		return false, err
	}
	d.screen.heading("2. Why: every template, in the API server's audit log")
	d.printReasons(event)
	d.printCalls(event)
	return injected, nil
}

// showChange shows what Pillion added to the pod.
func (d *demo) showChange(pod *corev1.Pod, event cluster.Event) error {
	before, after, err := d.beforeAndAfter(pod, event)
	if err != nil {
		return err
	}
	d.screen.heading("1. The pod, as its Deployment made it and as Kubernetes stored it")
	d.screen.line(dim, "  Its namespace is labelled pillion.dev/inject=enabled. The templates are in e2e/demo/templates.")
	d.screen.line(dim, "  Defaults that Kubernetes filled in are left out.\n")
	return d.screen.diff("pod "+pod.Name+", as it reached Pillion", "pod "+pod.Name+", as it is stored", before, after)
}

// deploy returns the Deployment's pod and the request that created it.
func (d *demo) deploy(ctx context.Context) (*corev1.Pod, cluster.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	if err := d.Apply(ctx, deployment); err != nil {
		return nil, cluster.Event{}, err
	}
	var pod *corev1.Pod
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := d.Client.CoreV1().Pods(optedIn).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		pod = &pods.Items[0]
		return true, nil
	})
	if err != nil {
		return nil, cluster.Event{}, fmt.Errorf("the Deployment's pod: %w", err)
	}
	event, err := d.Audit.Wait(ctx, func(e cluster.Event) bool { return e.CreatesPod(optedIn, pod.Name) })
	return pod, event, err
}

// beforeAndAfter returns the pod that Pillion received, and that pod with the applied patch. It checks that the stored pod has
// everything that the patched pod has.
func (d *demo) beforeAndAfter(stored *corev1.Pod, event cluster.Event) (before, after []byte, err error) {
	calls := d.webhooks.Calls(recorder, stored)
	if len(calls) == 0 {
		return nil, nil, errors.New("the recorder was not called for the pod")
	}
	before = calls[0].Object
	patch, err := jsonpatch.DecodePatch(event.Patch(d.manifests.Mutating.Name, "round_0"))
	if err != nil {
		return nil, nil, fmt.Errorf("the patch in the audit log: %w; Pillion said %v", err, event.Reasons())
	}
	if after, err = patch.Apply(before); err != nil {
		return nil, nil, err
	}
	typed := stored.DeepCopy()
	typed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} // clients leave it out
	storedJSON, err := json.Marshal(typed)
	if err != nil {
		return nil, nil, err
	}
	var want, have any
	if err := errors.Join(json.Unmarshal(after, &want), json.Unmarshal(storedJSON, &have)); err != nil {
		return nil, nil, err
	}
	if path := missing(want, have); path != "" {
		return nil, nil, fmt.Errorf("the stored pod has something else at %s than Pillion's patch", path)
	}
	return before, after, nil
}

// missing returns the path of a value that have lacks, or "" if it contains all of want.
// Kubernetes only adds keys: names, identifiers and defaults.
func missing(want, have any) string {
	switch want := want.(type) {
	case map[string]any:
		have, _ := have.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			value, ok := have[key]
			if path := missing(want[key], value); !ok || path != "" {
				return "." + key + strings.TrimPrefix(path, "?")
			}
		}
		return ""
	case []any:
		have, _ := have.([]any)
		if len(have) != len(want) {
			return "?"
		}
		for i := range want {
			if path := missing(want[i], have[i]); path != "" {
				return fmt.Sprintf("[%d]", i) + strings.TrimPrefix(path, "?")
			}
		}
		return ""
	default:
		if want != have {
			return "?"
		}
		return ""
	}
}

// printReasons prints Pillion's audit annotations.
func (d *demo) printReasons(event cluster.Event) {
	const template, decision = 16, 18
	d.screen.line(dim, "  %-*s%-*s%s", template, "TEMPLATE", decision, "DECISION", "BECAUSE")
	reasons := event.Reasons()
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		code, sentence, _ := strings.Cut(reasons[name], ": ")
		color := yellow
		if code == "injected" {
			color = green
		}
		for i, part := range wrap(sentence, width-2-template-decision) {
			if i > 0 {
				name, code = "", ""
			}
			fmt.Fprintf(d.screen.out, "  %-*s%s%s\n", template, name, d.screen.paint(color, fmt.Sprintf("%-*s", decision, code)), part)
		}
	}
}

// printCalls prints that the pod took one call.
func (d *demo) printCalls(event cluster.Event) {
	calls := event.Calls(d.manifests.Mutating.Name)
	d.screen.line(plain, "\n  Mutating calls for this pod: %d.", len(calls))
	if len(calls) == 1 {
		d.screen.line(plain, "  Kubernetes would have had it called again to mount the service account's token into the sidecar;")
		d.screen.line(plain, "  it is mounted already.")
	}
	d.screen.line(plain, "")
}
