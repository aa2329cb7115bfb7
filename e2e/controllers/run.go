// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
)

const (
	workers  = 5
	resync   = 12 * time.Hour
	gcResync = 5 * time.Second // interval at which the collector discovers new resource types
)

// manager has the dependencies of the controllers, and the controllers.
type manager struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	typed    informers.SharedInformerFactory
	untyped  metadatainformer.SharedInformerFactory
	started  chan struct{} // closed after the informers were started
	run      []func(context.Context)
}

// runControllers returns when ctx is done.
func runControllers(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	m := &manager{
		client:   client,
		metadata: objects,
		typed:    informers.NewSharedInformerFactory(client, resync),
		untyped:  metadatainformer.NewSharedInformerFactory(objects, resync),
		started:  make(chan struct{}),
	}
	for _, add := range []func(context.Context) error{m.addNamespaces, m.addWorkloads, m.addJobs, m.addCollector} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	m.typed.Start(ctx.Done())
	m.untyped.Start(ctx.Done())
	close(m.started)
	var running sync.WaitGroup
	for _, run := range m.run {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
	return nil
}

// addNamespaces adds the controllers that create the ServiceAccount of each namespace, that
// empty deleted namespaces, and that aggregate the default roles.
func (m *manager) addNamespaces(ctx context.Context) error {
	core := m.typed.Core().V1()
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), m.client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	namespaces := namespace.NewNamespaceController(ctx, m.client, m.metadata, m.client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), resync, corev1.FinalizerKubernetes)
	m.add(clusterroleaggregation.NewClusterRoleAggregation(m.typed.Rbac().V1().ClusterRoles(), m.client.RbacV1()).Run)
	m.add(accounts.Run)
	m.add(namespaces.Run)
	return nil
}

func (m *manager) addWorkloads(ctx context.Context) error {
	apps, core := m.typed.Apps().V1(), m.typed.Core().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), m.client)
	if err != nil {
		return err
	}
	daemons, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), m.client,
		flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return err
	}
	m.add(deployments.Run)
	m.add(daemons.Run)
	m.add(replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), m.client, replicaset.BurstReplicas).Run)
	m.add(statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), m.client).Run)
	return nil
}

func (m *manager) addJobs(ctx context.Context) error {
	batch := m.typed.Batch().V1()
	jobs, err := job.NewController(ctx, m.client, m.typed.Core().V1().Pods(), batch.Jobs(), nil, nil)
	if err != nil {
		return err
	}
	cronJobs, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), m.client)
	if err != nil {
		return err
	}
	m.add(jobs.Run)
	m.add(cronJobs.Run)
	return nil
}

// addCollector adds the garbage collector, which deletes objects whose owner no longer exists.
func (m *manager) addCollector(ctx context.Context) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(m.client.Discovery()))
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, m.metadata, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(m.typed, m.untyped), m.started)
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, m.client, m.metadata, mapper, graph)
	if err != nil {
		return err
	}
	m.run = append(m.run,
		func(ctx context.Context) { collector.Run(ctx, workers, gcResync) },
		func(ctx context.Context) { collector.Sync(ctx, m.client.Discovery(), gcResync) })
	return nil
}

func (m *manager) add(run func(context.Context, int)) {
	m.run = append(m.run, func(ctx context.Context) { run(ctx, workers) })
}
