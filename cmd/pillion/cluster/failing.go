// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject/report/status"
)

// whyCannotCreate returns why an object cannot create its pods, as status reports it. It returns "" if the object
// can create them, or if that is unknown. The ReplicaSets of a Deployment are not read: the Deployment has their conditions.
func (i *Installation) whyCannotCreate(ctx context.Context, p *namespace, object *unstructured.Unstructured) (string, error) {
	if object.GetKind() != "CronJob" {
		return i.whyLacksPods(ctx, p, object)
	}
	if p.failing == nil {
		i.failingJobs(ctx, p)
	}
	return p.failing[object.GetName()], nil
}

// failingJobs finds the Jobs of CronJobs that cannot create their pods.
func (i *Installation) failingJobs(ctx context.Context, p *namespace) {
	p.failing = map[string]string{}
	jobs := i.Resource(batch.WithResource("jobs")).Namespace(p.Name)
	err := i.eachObject(ctx, jobs, "", func(job *unstructured.Unstructured) error {
		owner := metav1.GetControllerOf(job)
		if owner == nil || owner.Kind != "CronJob" {
			return nil
		}
		job.SetGroupVersionKind(batch.WithKind("Job")) // items of a list may lack it
		why, err := i.whyLacksPods(ctx, p, job)
		if why != "" {
			p.failing[owner.Name] = why
		}
		return err
	}, func() { clear(p.failing) })
	if err != nil {
		p.notes = append(p.notes, "Whether the Jobs of CronJobs can create their pods is unknown: "+whyNot(err, "jobs in the namespace "+p.Name)+".")
	}
}

// whyLacksPods is whyCannotCreate for an object that creates its pods itself, or a Deployment.
func (i *Installation) whyLacksPods(ctx context.Context, p *namespace, object *unstructured.Unstructured) (string, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return "", err
	}
	f, err := status.NewCount(i.injector, i.namespaceScope(p)).FindFailing(text)
	if f == nil || err != nil {
		return "", err
	}
	if f.Unexplained() {
		if message := i.lastFailure(ctx, object.GetKind(), object); message != "" {
			f.Explain(message)
		}
	}
	return f.Why, nil
}
