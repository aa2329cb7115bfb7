// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/manifests"
)

// askAgain is how often to find out whether the kinds of templates are installed now.
const askAgain = 10 * time.Second

// Run runs the controller until ctx is done or an error occurs. Of several replicas, only the leader works.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	o.memoryLimit.Apply()
	config, err := kube.Config(o.kubeconfig)
	if err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(o.adminListen); err != nil {
		return fmt.Errorf("--admin-listen %s cannot be used: %w", o.adminListen, err)
	}
	logger := logr.FromSlogHandler(log.Handler())
	ctrllog.SetLogger(logger)
	namespace := "" // the pod's
	if o.kubeconfig != "" {
		namespace = manifests.Namespace
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	templates, err := kube.NewRESTClient(config)
	if err != nil {
		return err
	}
	system := cmp.Or(namespace, ownNamespace())
	s := &statuses{pods: newPods(client), templates: followTemplates(templates, o.templateLimits), log: log}
	if s.podEvents, err = o.podEvents(config, system, s.templates, log); err != nil {
		return err
	}
	if s.missing, err = newMissing(config, system, s.templates, log); err != nil {
		return err
	}
	if s.rollouts, err = o.newRollouts(config, system, log); err != nil {
		return err
	}
	s.histories = &histories{
		read: s.templates, keep: kube.NewHistory(templates, system).Keep, most: o.history,
		now: time.Now, log: log, kept: map[types.NamespacedName]content{},
	}
	s.all, err = manager.New(config, manager.Options{
		Logger:                        logger,
		Metrics:                       metricsserver.Options{BindAddress: o.adminListen, ExtraHandlers: s.probeHandlers()},
		LeaderElection:                true,
		LeaderElectionID:              manifests.ControllerName,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := s.all.Add(manager.RunnableFunc(s.runLeader)); err != nil {
		return err
	}
	counts := &rolloutMetrics{leads: s.leads.Load, entries: s.templates.Entries}
	if err := metrics.Registry.Register(counts); err != nil {
		return err
	}
	defer metrics.Registry.Unregister(counts)
	log.Info("starting", "admin", o.adminListen, "version", cli.BuildVersion().Version)
	if err := s.all.Start(ctx); err != nil {
		return err
	}
	log.Info("bye")
	return nil
}

// statuses has the parts of the controller.
type statuses struct {
	all       manager.Manager
	pods      *pods
	templates *followed
	rollouts  *rollouts
	histories *histories
	podEvents *podEvents // nil: there are none
	missing   *missing
	log       *slog.Logger

	leads atomic.Bool
}

// runLeader does the work of the leader until ctx is done.
func (s *statuses) runLeader(ctx context.Context) error {
	s.log.Info("this replica leads")
	s.leads.Store(true)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, kind := range s.templates.kinds {
		if err := s.awaitKind(ctx, kind); err != nil {
			return nil // the process ends
		}
		running.Go(func() { kind.Run(ctx) })
	}
	of, err := controller.NewUnmanaged("templates", controller.Options{Reconciler: s.newReconciler(), Logger: s.all.GetLogger()})
	if err != nil {
		return err
	}
	for _, events := range []source.Source{s.templates, s.pods} {
		if err := of.Watch(events); err != nil {
			return err
		}
	}
	s.missing.changed = s.pods.requestReconciles
	running.Go(func() { s.missing.countUntilDone(ctx, s.pods.WaitForSync) })
	s.pods.offers = append(s.pods.offers, s.missing.notePod)
	if s.podEvents != nil {
		s.pods.offers = append(s.pods.offers, s.podEvents.offerPod)
		running.Go(func() { s.podEvents.examinePods(ctx) })
	}
	rollouts, err := s.rollouts.newController(s.all, s.pods, s.templates)
	if err != nil {
		return err
	}
	histories, err := s.histories.newController(s.all, s.templates)
	if err != nil {
		return err
	}
	return runControllers(ctx, of, rollouts, histories)
}

// runControllers runs controllers until ctx is done or one of them fails.
func runControllers(ctx context.Context, all ...controller.Controller) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(all))
	for _, of := range all {
		go func() { ended <- of.Start(ctx) }()
	}
	err := <-ended
	cancel()
	for range all[1:] {
		err = errors.Join(err, <-ended)
	}
	return err
}

// awaitKind waits until a kind is installed.
func (s *statuses) awaitKind(ctx context.Context, kind *kube.Kind) error {
	told := false
	return wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		err := kind.Installed(ctx)
		if err != nil && !told {
			told = true
			s.log.Error("the templates cannot be read, trying again; are their kinds installed?", "resource", kind.Name, "error", err)
		}
		return err == nil, nil
	})
}

func (s *statuses) newReconciler() *reconciler {
	events := s.all.GetEventRecorder(manifests.ControllerName)
	return &reconciler{
		read: s.templates,
		apply: func(ctx context.Context, status *unstructured.Unstructured) error {
			return s.all.GetClient().Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status), client.FieldOwner(fieldManager), client.ForceOwnership)
		},
		event: func(template *unstructured.Unstructured, kind, reason, message string) {
			events.Eventf(template, nil, kind, reason, "Check", "%s", message)
		},
		count: s.pods.countPods, missing: s.missing.countFor,
		now: metav1.Now, namespaces: s.rollouts.namespacesOf,
		known: map[types.NamespacedName]known{},
	}
}

// probeHandlers answers the probes.
func (s *statuses) probeHandlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/livez": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch {
			case s.leads.Load() && !s.templates.haveSynced():
				http.Error(w, "the templates are not read yet; are their kinds installed?", http.StatusServiceUnavailable)
			case s.leads.Load() && !s.pods.haveSynced():
				http.Error(w, "the pods are not read yet", http.StatusServiceUnavailable)
			default: // a replica that does not lead is ready to
				_, _ = w.Write([]byte("ok\n"))
			}
		}),
	}
}
