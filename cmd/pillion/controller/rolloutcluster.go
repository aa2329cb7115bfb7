// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/manifests"
)

// enabledRollout is the value of the label.
const enabledRollout = "enabled"

// newRollouts returns a rollouts that plans and updates pods in the cluster. newController sets what needs a manager. Pillion runs in
// the namespace system.
func (o *Options) newRollouts(config *rest.Config, system string, log *slog.Logger) (*rollouts, error) {
	c, err := cluster.NewClient(config, system)
	if err != nil {
		return nil, err
	}
	if err := c.LimitTenants(o.qps); err != nil {
		return nil, err
	}
	plans := cluster.NewFairQueue()
	return &rollouts{
		namespaces: func(ctx context.Context) ([]string, error) {
			return c.Labelled(ctx, cluster.LabelRollout+"="+enabledRollout, c.Injects)
		},
		plan: func(ctx context.Context, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
			// Plans take memory and time, and tenants can cause many.
			done, err := plans.Wait(ctx)
			if err != nil {
				return nil, err
			}
			defer done()
			return c.Rollout(ctx, cluster.Query{Namespaces: namespaces}, b, io.Discard)
		},
		cluster: c.Executor(),
		run: func(ctx context.Context, r *executor.Rollout, all []*rollout.Workload) error {
			return r.Run(ctx, all)
		},
		limits: o.limits, now: time.Now, log: log, planned: map[types.NamespacedName]planned{}, wrote: map[types.NamespacedName]wrote{},
	}, nil
}

// ownNamespace returns the namespace of the pod that this process runs in.
func ownNamespace() string {
	name, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return manifests.Namespace
	}
	return strings.TrimSpace(string(name))
}

// controllerOptions returns the options of the controller that calls Reconcile.
func (r *rollouts) controllerOptions(log logr.Logger) controller.Options {
	return controller.Options{Reconciler: r, MaxConcurrentReconciles: mostAtOnce, Logger: log}
}

// newController returns the controller that calls Reconcile for each template.
func (r *rollouts) newController(all manager.Manager, pods *pods, templates *followed) (controller.Controller, error) {
	r.read, r.count = templates, pods.countPods
	r.apply = func(ctx context.Context, status *unstructured.Unstructured) error {
		return all.GetClient().Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status), client.FieldOwner(rolloutManager), client.ForceOwnership)
	}
	events := all.GetEventRecorder(manifests.ControllerName)
	r.event = func(template *unstructured.Unstructured, kind, reason, message string) {
		action := "Rollout"
		if reason == waveReason { // events with the same action become one
			action, _, _ = strings.Cut(message, ":")
		}
		events.Eventf(template, nil, kind, reason, action, "%s", message)
	}
	r.counted = func(template types.NamespacedName) {
		pods.queue.Add(reconcile.Request{NamespacedName: template})
	}
	of, err := controller.NewUnmanaged("rollouts", r.controllerOptions(all.GetLogger()))
	if err != nil {
		return nil, err
	}
	return of, of.Watch(templates)
}
