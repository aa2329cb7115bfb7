// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/manifests"
)

// A replica ends by itself before the kubelet ends it.
func TestDrainFitsGracePeriod(t *testing.T) {
	text, err := fs.ReadFile(manifests.Base, "base/40-deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	serve := newServe()
	if err := serve.ParseFlags(pod.Containers[0].Args[1:]); err != nil {
		t.Fatal(err)
	}
	delay, err := serve.Flags().GetDuration("shutdown-delay")
	if err != nil {
		t.Fatal(err)
	}
	takes := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds)*time.Second + delay + drainTime + 2*time.Second + exportTime // the Lease is given back, the last traces are sent
	if grace := pod.TerminationGracePeriodSeconds; grace == nil || takes >= time.Duration(*grace)*time.Second {
		t.Errorf("a replica takes up to %s to end, and is given %v s", takes, grace)
	}
}
