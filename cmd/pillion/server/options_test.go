// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestLimitRuntime checks that memory use on a large node equals that on a small one. The test is
// not parallel, because it measures the process.
func TestLimitRuntime(t *testing.T) {
	t.Setenv("GOMAXPROCS", "") // because a number that the user sets is kept
	before := runtime.GOMAXPROCS(64)
	defer runtime.GOMAXPROCS(before)
	if new(Options).limitRuntime(); runtime.GOMAXPROCS(0) != maxCPUs {
		t.Errorf("%d CPUs are used", runtime.GOMAXPROCS(0))
	}
}

// TestDrainFitsGracePeriod checks that a replica stops by itself before the kubelet kills it.
func TestDrainFitsGracePeriod(t *testing.T) {
	text, err := os.ReadFile("../../../manifests/base/40-deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	var o Options
	cmd := &cobra.Command{}
	o.Flags(cmd)
	if err := cmd.ParseFlags(pod.Containers[0].Args[1:]); err != nil {
		t.Fatal(err)
	}
	takes := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds)*time.Second + o.shutdownDelay + drainTime + 2*time.Second + exportTime // the Lease is given back, the last traces are sent
	if grace := pod.TerminationGracePeriodSeconds; grace == nil || takes >= time.Duration(*grace)*time.Second {
		t.Errorf("a replica takes up to %s to end, and is given %v s", takes, grace)
	}
}
