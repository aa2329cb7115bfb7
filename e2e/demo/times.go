// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const pairs = 50

// showTimes creates pods in pairs, one with and one without injection, and shows the times
// that a client measures.
func (d *demo) showTimes(ctx context.Context) error {
	var with, without []time.Duration
	err := d.steps.Do(fmt.Sprintf("%d pods with injection and %d without, by turns", pairs, pairs), func() (err error) {
		if err = d.removeRecorder(ctx); err == nil {
			with, without, err = d.createPairs(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.screen.heading("3. How long it took")
	d.printTimes("create a pod, not opted in", without)
	d.printTimes("create a pod, injected", with)
	d.screen.line(bold, "  %-30s %6.1f ms for both webhooks, there and back", "so injection costs", milliseconds(median(with)-median(without)))
	return nil
}

// removeRecorder removes the recorder, which should not be measured.
func (d *demo) removeRecorder(ctx context.Context) error {
	if err := d.webhooks.Uninstall(ctx, d.Client, recorder); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	gone := func(e cluster.Event) bool { return len(e.Calls(recorder)) == 0 }
	return errors.Join(d.WaitForWebhook(ctx, optedIn, gone), d.WaitForPods(ctx, notOptedIn))
}

// createPairs alternates, so that other load on the machine affects both alike.
func (d *demo) createPairs(ctx context.Context) (with, without []time.Duration, err error) {
	var manifest appsv1.Deployment
	if err := yaml.Unmarshal(deployment, &manifest); err != nil {
		return nil, nil, err
	}
	template := manifest.Spec.Template
	for i := range pairs {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name = fmt.Sprintf("timed-%d", i)
		for namespace, times := range map[string]*[]time.Duration{optedIn: &with, notOptedIn: &without} {
			started := time.Now()
			created, err := d.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return nil, nil, err
			}
			*times = append(*times, time.Since(started))
			if injected := len(created.Spec.InitContainers) > 0; injected != (namespace == optedIn) {
				return nil, nil, fmt.Errorf("pod %s/%s: injected is %t", namespace, pod.Name, injected)
			}
		}
	}
	return with, without, nil
}

func (d *demo) printTimes(what string, times []time.Duration) {
	slices.Sort(times)
	slowest := times[len(times)-1]
	d.screen.line(plain, "  %-30s %6.1f ms median of %d, slowest %.1f ms", what, milliseconds(median(times)), len(times), milliseconds(slowest))
}

func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func milliseconds(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }
