// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject"
)

// eventsAPI is an API server with pods, whose mistakes it knows.
type eventsAPI struct {
	namespaces map[string]map[string]string // their labels
	mistakes   map[string][]cluster.Mistake // by pod
	events     map[string]*eventsv1.Event   // by namespace and name
	examined   []string
	asked      map[string]int // for namespaces
}

// start returns podEvents that run until the test ends.
func (a *eventsAPI) start(t *testing.T) *podEvents {
	t.Helper()
	e := newPodEvents()
	e.log, e.self = slog.New(slog.DiscardHandler), "self"
	a.events, a.asked = map[string]*eventsv1.Event{}, map[string]int{}
	e.optedIn = func(_ string, labels map[string]string) bool {
		label, ok := labels[inject.LabelInject]
		return !ok || label == inject.Enabled
	}
	e.namespace = func(_ context.Context, name string) (*corev1.Namespace, error) {
		a.asked[name]++
		labels, ok := a.namespaces[name]
		if !ok {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
	}
	e.examine = func(_ context.Context, _ *corev1.Namespace, pods ...string) (map[string][]cluster.Mistake, error) {
		found := map[string][]cluster.Mistake{}
		for _, name := range pods {
			a.examined = append(a.examined, name)
			if mistakes, ok := a.mistakes[name]; ok {
				found[name] = slices.Clone(mistakes)
			}
		}
		return found, nil
	}
	e.owner = func(_ context.Context, _ string, of metav1.OwnerReference) (*metav1.OwnerReference, error) {
		switch of.Kind {
		case "ReplicaSet":
			return controllerOf("apps/v1", "Deployment", "web", "deployment"), nil
		case "Job":
			return controllerOf("batch/v1", "CronJob", "night", "cron"), nil
		}
		return nil, nil
	}
	e.create = func(_ context.Context, event *eventsv1.Event) error {
		key := event.Namespace + "/" + event.Name
		if a.events[key] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, event.Name)
		}
		a.events[key] = event
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { e.examinePods(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return e
}

// notes are the Events as lines.
func (a *eventsAPI) notes() (lines []string) {
	for _, key := range slices.Sorted(maps.Keys(a.events)) {
		e := a.events[key]
		lines = append(lines, fmt.Sprintf("%s %s/%s %s %s: %s", e.Regarding.UID, e.Regarding.Kind, e.Regarding.Name, e.Type, e.Reason, e.Note))
	}
	slices.Sort(lines)
	return lines
}

func controllerOf(apiVersion, kind, name, uid string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}
}

// newlyMade returns a pod that was created now.
func newlyMade(namespace, name string, owner *metav1.OwnerReference, labels ...string) *metav1.PartialObjectMetadata {
	p := pod(namespace, name, nil)
	p.UID, p.CreationTimestamp, p.Labels = types.UID("uid-"+name), metav1.NewTime(time.Now()), map[string]string{}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	for _, label := range labels {
		p.Labels[inject.LabelInject] = label
	}
	return p
}

const invalidHost = "parameter host has no value; set the annotation agent.pillion.dev/host"

// pass lets time pass in a bubble of synctest, until everything in it waits.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time is the bubble's
	synctest.Wait()
}

// TestPodEvents checks which Events there are, and about which object.
func TestPodEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		invalid := []cluster.Mistake{
			{Template: "agent", Code: inject.CodeInvalidParameter, Message: invalidHost},
			{Template: "agent", Code: inject.CodeUnknownParameter, Message: `the annotation agent.pillion.dev/hots sets no parameter; did you mean "host"?`},
		}
		a := &eventsAPI{
			namespaces: map[string]map[string]string{"shop": {inject.LabelInject: inject.Enabled}, "plain": nil, "off": {inject.LabelInject: inject.Disabled}},
			mistakes: map[string][]cluster.Mistake{
				"web-a-1": invalid, "web-a-2": invalid, "bare": invalid[:1], "fine": {}, "rollout-1": invalid[:1], "optedin": invalid[:1], "ignored": invalid, "old": invalid,
				"night-1": {{Code: inject.CodeUnknownTemplate, Message: `the pod names the unknown template "x"`}},
				"night-2": {{Code: inject.CodeUnknownTemplate, Message: `the pod names the unknown template "x"`}},
			},
		}
		e := a.start(t)
		set := controllerOf("apps/v1", "ReplicaSet", "web-a", "set")
		old := newlyMade("shop", "old", nil)
		old.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * examinedAge))
		going := newlyMade("shop", "ignored", nil)
		going.DeletionTimestamp = new(metav1.Now())
		for range 3 { // a pod changes often
			for _, p := range []*metav1.PartialObjectMetadata{
				newlyMade("shop", "web-a-1", set), newlyMade("shop", "web-a-2", set), newlyMade("shop", "bare", nil), newlyMade("shop", "fine", nil),
				newlyMade("shop", "rollout-1", controllerOf("argoproj.io/v1alpha1", "Rollout", "canary", "rollout")),
				newlyMade("shop", "night-1", controllerOf("batch/v1", "Job", "night-29312345", "job1")),
				newlyMade("shop", "night-2", controllerOf("batch/v1", "Job", "night-29312346", "job2")),
				newlyMade("shop", "ignored", nil, inject.Disabled), old, going, newlyMade("plain", "ignored", nil), newlyMade("off", "ignored", nil),
				newlyMade("gone", "ignored", nil),
			} {
				e.offerPod(p)
			}
			pass(time.Second)
		}
		e.offerPod(newlyMade("plain", "optedin", nil, inject.Enabled))
		pass(time.Second)
		want := []string{
			"deployment Deployment/web Warning InvalidParameter: The pods do not get the sidecar agent: " + invalidHost + ". Details: pillion explain deployment/web -n shop",
			`deployment Deployment/web Warning UnknownParameter: agent: the annotation agent.pillion.dev/hots sets no parameter; did you mean "host"? Details: pillion explain deployment/web -n shop`,
			`cron CronJob/night Warning UnknownTemplate: the pod names the unknown template "x". Details: pillion explain cronjob/night -n shop`,
			"rollout Rollout/canary Warning InvalidParameter: The pods do not get the sidecar agent: " + invalidHost + ". Details: pillion explain pod/rollout-1 -n shop",
			"uid-bare Pod/bare Warning InvalidParameter: The pod does not get the sidecar agent: " + invalidHost + ". Details: pillion explain pod/bare -n shop",
			"uid-optedin Pod/optedin Warning InvalidParameter: The pod does not get the sidecar agent: " + invalidHost + ". Details: pillion explain pod/optedin -n plain",
		}
		slices.Sort(want)
		if got := a.notes(); !slices.Equal(got, want) {
			t.Errorf("the Events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if len(a.examined) != 6 { // web, bare, fine, canary, night and optedin
			t.Errorf("%d pods were examined: %q", len(a.examined), a.examined)
		}
	})
}

// TestPodEventsBounded checks that the numbers of Events, of examinations and of what is remembered have bounds, whatever
// the number of pods that have a mistake, how often they change, and how often the controller starts.
func TestPodEventsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, hours = 1000, 3
		mistake := []cluster.Mistake{{Template: "agent", Code: inject.CodeInvalidParameter, Message: invalidHost}}
		a := &eventsAPI{namespaces: map[string]map[string]string{"noisy": {inject.LabelInject: inject.Enabled}, "quiet": {inject.LabelInject: inject.Enabled}}, mistakes: map[string][]cluster.Mistake{"victim": mistake}}
		e := a.start(t)
		// A Deployment whose pods crash and are replaced without end, and pods without a controller.
		for i := range pods {
			a.mistakes[fmt.Sprint("crashed-", i)], a.mistakes[fmt.Sprint("bare-", i)] = mistake, mistake
		}
		for minute := range 60 * hours {
			for i := range pods {
				e.offerPod(newlyMade("noisy", fmt.Sprint("bare-", i), nil))
				if i < 10 {
					e.offerPod(newlyMade("noisy", fmt.Sprint("crashed-", (10*minute+i)%pods), controllerOf("apps/v1", "ReplicaSet", "web-a", "set")))
				}
			}
			if minute == 30 {
				e.offerPod(newlyMade("quiet", "victim", nil))
			}
			pass(time.Minute)
		}
		quiet, deployment := 0, 0
		for _, event := range a.events {
			if event.Namespace == "quiet" {
				quiet++
			}
			if event.Regarding.Kind == "Deployment" {
				deployment++
			}
		}
		if quiet != 1 {
			t.Errorf("the other namespace has %d Events", quiet)
		}
		if deployment > 1 {
			t.Errorf("the Deployment has %d Events", deployment)
		}
		if most := eventsBurst + 60*hours + 2; len(a.events) > most || len(a.events) < eventsBurst {
			t.Errorf("%d Events, want at most %d", len(a.events), most)
		}
		if most := examinationsBurst + examinations*3600*hours; len(a.examined) > most {
			t.Errorf("%d examinations, want at most %d", len(a.examined), most)
		}
		if n := len(e.waiting["noisy"]); n > mostWaiting {
			t.Errorf("%d pods wait", n)
		}
		if a.asked["noisy"] > 3*60*hours {
			t.Errorf("the namespace was read %d times", a.asked["noisy"])
		}
		// Another controller finds the same mistakes, and creates no second Event about them.
		before, events := len(a.events), a.events
		again := a.start(t)
		a.events = events
		for i := range eventsBurst / 2 {
			again.offerPod(newlyMade("noisy", fmt.Sprint("crashed-", i), controllerOf("apps/v1", "ReplicaSet", "web-a", "set")))
		}
		pass(time.Minute)
		if got := len(a.events); got != max(before, before+1-deployment) {
			t.Errorf("%d Events, and %d after a restart", before, got)
		}
	})
}

// BenchmarkOfferPod measures what each change of a pod costs, in a cluster with many workloads that were examined already. All
// examinations together are bounded by their rate.
func BenchmarkOfferPod(b *testing.B) {
	e := newPodEvents()
	pods := make([]*metav1.PartialObjectMetadata, mostExamined)
	for i := range pods {
		pods[i] = newlyMade("shop", fmt.Sprint("web-", i), controllerOf("apps/v1", "ReplicaSet", fmt.Sprint("web-", i), fmt.Sprint("set-", i)))
		e.examined.Add(workloadOf(pods[i], metav1.GetControllerOfNoCopy(pods[i])), true, examinedAgain)
	}
	i := 0
	for b.Loop() {
		e.offerPod(pods[i%len(pods)])
		i++
	}
	if len(e.waiting) > 0 {
		b.Error("a pod waits to be examined")
	}
}

// TestEventLimits checks that the API server accepts each Event: the length of its name and of its note.
func TestEventLimits(t *testing.T) {
	e := newPodEvents()
	for _, length := range []int{1, 100, 253} {
		for _, text := range []string{"short", strings.Repeat("ä", 3000)} {
			about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: strings.Repeat("a", length), UID: "1"}
			event := e.newEvent(cluster.Mistake{Template: "agent", Code: inject.CodeConflict, Message: text}, about, nil)
			if len(event.Name) > 253 || len(event.Note) > 1024 || !strings.HasSuffix(event.Note, "-n shop") {
				t.Errorf("the name has %d bytes, and the note %d: %s", len(event.Name), len(event.Note), event.Note)
			}
		}
	}
}

// TestReasons checks that the reason of an Event is its code.
func TestReasons(t *testing.T) {
	for code, want := range map[inject.Code]string{
		inject.CodeInvalidParameter: "InvalidParameter", inject.CodeConflict: "Conflict", inject.CodeUnknownTemplate: "UnknownTemplate",
		inject.CodeRenderFailed: "RenderFailed", inject.CodeNotInjected: "NotInjected", inject.CodeUnknownParameter: "UnknownParameter",
	} {
		if got := (cluster.Mistake{Code: code}).Reason(); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
}
