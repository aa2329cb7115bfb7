// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/manifests"
)

// The bounds of podEvents. Of each workload, only one pod is examined within a time, so a rollout of any size costs one examination.
const (
	// examinedAge is the age up to which a pod is examined. API servers keep Events for one hour, too.
	examinedAge = time.Hour
	// examinedAgain is after how long another pod of the same workload is examined.
	examinedAgain = time.Hour
	// mostExamined is the number of workloads that are remembered.
	mostExamined = 10_000
	// examinations is the rate of pods, and of namespaces, that are examined in one second, after a burst.
	examinations, examinationsBurst = 1, 50
	// eventsBurst is how many Events a namespace gets at once, and then one for each eventsEvery.
	eventsBurst, eventsEvery = 20, time.Minute
	// mostNamespaces and mostWaiting bound what waits: namespaces, and pods of each.
	mostNamespaces, mostWaiting = 1_000, 100
	// inTurn is how many pods of a namespace are examined before those of another one.
	inTurn = 10
	// mostOfWorkload is the maximum number of Events about one pod of a workload.
	mostOfWorkload = 3
	// namespaceKnown is how long the labels of a namespace are used.
	namespaceKnown = 30 * time.Second
)

// podEvents reports to users, with Events, why their pods lack sidecars. It examines one new pod of each workload, and keeps no
// pods: what it remembers has the bounds above, whatever is in the cluster.
type podEvents struct {
	examine   func(ctx context.Context, ns *corev1.Namespace, pods ...string) (map[string][]cluster.Mistake, error)
	namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	optedIn   func(name string, labels map[string]string) bool
	// owner returns the controller of an object that only other controllers make, or nil.
	owner  func(ctx context.Context, namespace string, of metav1.OwnerReference) (*metav1.OwnerReference, error)
	create func(ctx context.Context, event *eventsv1.Event) error
	now    func() time.Time
	log    *slog.Logger
	self   string // the instance that reports

	examined   *cache.LRUExpireCache // workloads
	namespaces *cache.LRUExpireCache // *corev1.Namespace by name, or nil if only pods that opt in themselves get sidecars
	budgets    *cache.LRUExpireCache // *rate.Limiter by namespace
	rate       *rate.Limiter
	wake       chan struct{}

	mu      sync.Mutex
	waiting map[string]map[string]candidate // by namespace and workload
	turns   []string                        // the namespaces that wait, in order
}

// candidate is a pod to examine.
type candidate struct {
	name    string
	uid     types.UID
	owner   *metav1.OwnerReference // its controller, or nil
	optedIn bool                   // whether it has the opt-in label itself
}

// newPodEvents returns a podEvents without the functions that read and write the cluster.
func newPodEvents() *podEvents {
	return &podEvents{
		now: time.Now, examined: cache.NewLRUExpireCache(mostExamined),
		namespaces: cache.NewLRUExpireCache(mostNamespaces), budgets: cache.NewLRUExpireCache(mostNamespaces),
		rate: rate.NewLimiter(examinations, examinationsBurst), wake: make(chan struct{}, 1), waiting: map[string]map[string]candidate{},
	}
}

// scheduled matches the end of the name of a Job that a CronJob makes: the scheduled minute.
var scheduled = regexp.MustCompile(`-\d{8,}$`)

// workloadOf returns a key that is equal for pods of a workload with the same pod template. The Jobs of a CronJob are one
// workload.
func workloadOf(pod *metav1.PartialObjectMetadata, owner *metav1.OwnerReference) string {
	if owner == nil {
		return string(pod.UID)
	}
	if name := scheduled.ReplaceAllString(owner.Name, ""); owner.Kind == "Job" && name != owner.Name {
		return pod.Namespace + "/CronJob/" + name
	}
	return string(owner.UID) + "/" + pod.Labels[appsv1.ControllerRevisionHashLabelKey]
}

// offerPod notes a pod that may have to be examined. The store of pods calls it for each change of a pod, so it is cheap.
func (e *podEvents) offerPod(pod *metav1.PartialObjectMetadata) {
	if pod.DeletionTimestamp != nil || e.now().Sub(pod.CreationTimestamp.Time) > examinedAge || pod.Labels[cluster.LabelInject] == cluster.Disabled {
		return
	}
	if ns, ok := e.namespaces.Get(pod.Namespace); ok && ns == (*corev1.Namespace)(nil) && pod.Labels[cluster.LabelInject] != cluster.Enabled {
		return
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	workload := workloadOf(pod, owner)
	if _, ok := e.examined.Get(workload); ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.waiting[pod.Namespace]
	if of == nil {
		if len(e.waiting) >= mostNamespaces {
			return
		}
		of = map[string]candidate{}
		namespace := strings.Clone(pod.Namespace)
		e.waiting[namespace], e.turns = of, append(e.turns, namespace)
	}
	if _, ok := of[workload]; ok || len(of) >= mostWaiting {
		return
	}
	c := candidate{name: strings.Clone(pod.Name), uid: types.UID(strings.Clone(string(pod.UID))), optedIn: pod.Labels[cluster.LabelInject] == cluster.Enabled}
	if owner != nil {
		c.owner = owner.DeepCopy()
	}
	of[workload] = c
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// nextTurn returns the namespace whose turn it is and some of its waiting pods, by workload. It returns nil if no pod waits.
func (e *podEvents) nextTurn() (namespace string, turn map[string]candidate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.turns) == 0 {
		return "", nil
	}
	namespace, e.turns = e.turns[0], e.turns[1:]
	turn, all := map[string]candidate{}, e.waiting[namespace]
	for workload, c := range all {
		if len(turn) == inTurn {
			break
		}
		turn[workload] = c
		delete(all, workload)
	}
	if len(all) == 0 {
		delete(e.waiting, namespace)
	} else {
		e.turns = append(e.turns, namespace)
	}
	return namespace, turn
}

// examinePods examines pods until ctx is done.
func (e *podEvents) examinePods(ctx context.Context) {
	if _, err := e.examine(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}); err != nil && ctx.Err() == nil { // without pods: it only records since when the templates are known
		e.log.Warn("the templates cannot be read for Events", "error", err)
	}
	for {
		namespace, turn := e.nextTurn()
		if turn == nil {
			select {
			case <-e.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := e.rate.Wait(ctx); err != nil {
			return
		}
		if err := e.examineNamespace(ctx, namespace, turn); err != nil && ctx.Err() == nil {
			e.log.Warn("the pods of a namespace cannot be examined for Events", "namespace", namespace, "error", err)
		}
	}
}

// examineNamespace examines pods of a namespace.
func (e *podEvents) examineNamespace(ctx context.Context, namespace string, turn map[string]candidate) error {
	ns, err := e.findNamespace(ctx, namespace)
	if err != nil || ns == nil {
		return err
	}
	budget := e.budgetOf(namespace)
	for workload, c := range turn {
		if ns.Labels[cluster.LabelInject] == "" && !c.optedIn {
			continue
		}
		if budget.TokensAt(e.now()) < 1 {
			return nil // a pod that changes again is offered again
		}
		if err := e.rate.Wait(ctx); err != nil {
			return err
		}
		found, err := e.examine(ctx, ns, c.name)
		if err != nil {
			return err
		}
		mistakes, exists := found[c.name]
		if !exists {
			continue // the pod is gone; another pod of the workload may be offered
		}
		e.examined.Add(workload, true, examinedAgain)
		if err := e.createEvents(ctx, ns.Name, c, mistakes, budget); err != nil {
			return err
		}
	}
	return nil
}

// findNamespace returns a namespace, or nil if its pods get no sidecars. It keeps the result for a short time.
func (e *podEvents) findNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if known, ok := e.namespaces.Get(name); ok {
		if ns, _ := known.(*corev1.Namespace); ns != nil {
			return ns, nil
		}
	}
	ns, err := e.namespace(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !e.optedIn(ns.Name, ns.Labels) {
		e.namespaces.Add(name, (*corev1.Namespace)(nil), namespaceKnown)
		return nil, nil
	}
	if ns.Labels[cluster.LabelInject] == "" { // only pods that opt in are offered from now on
		e.namespaces.Add(name, (*corev1.Namespace)(nil), namespaceKnown)
	} else {
		e.namespaces.Add(name, ns, namespaceKnown)
	}
	return ns, nil
}

// budgetOf returns the budget of a namespace for Events. A budget that is not used is forgotten after the time in which it fills again.
func (e *podEvents) budgetOf(namespace string) (budget *rate.Limiter) {
	defer func() { e.budgets.Add(namespace, budget, eventsBurst*eventsEvery) }()
	if b, ok := e.budgets.Get(namespace); ok {
		return b.(*rate.Limiter)
	}
	return rate.NewLimiter(rate.Every(eventsEvery), eventsBurst)
}

// createEvents creates Events about the mistakes of a pod.
func (e *podEvents) createEvents(ctx context.Context, namespace string, c candidate, mistakes []cluster.Mistake, budget *rate.Limiter) error {
	if len(mistakes) == 0 {
		return nil
	}
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: c.name, UID: c.uid}
	about, related := pod, (*corev1.ObjectReference)(nil)
	if c.owner != nil {
		owner := *c.owner
		above, err := e.owner(ctx, namespace, owner)
		if err != nil {
			return err
		}
		if above != nil {
			owner = *above
		}
		about = corev1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace, Name: owner.Name, UID: owner.UID}
		related = &pod
	}
	slices.SortFunc(mistakes, cluster.CompareMistakes)
	for _, m := range mistakes[:min(len(mistakes), mostOfWorkload)] {
		if !budget.AllowN(e.now(), 1) {
			return nil
		}
		err := e.create(ctx, e.newEvent(m, about, related))
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating an Event: %w", err)
		}
	}
	return nil
}

// newEvent returns the Event about a mistake. Its name is the same for the same mistake, so that a restart of the controller
// causes no further Event.
func (e *podEvents) newEvent(m cluster.Mistake, about corev1.ObjectReference, related *corev1.ObjectReference) *eventsv1.Event {
	command := fmt.Sprintf(cluster.EventDetails+"%s/%s -n %s", explainKind(about), about.Name, about.Namespace)
	if explainKind(about) == "" {
		command = fmt.Sprintf(cluster.EventDetails+"pod/%s -n %s", cmp.Or(related, &about).Name, about.Namespace)
	}
	text := m.Message
	switch {
	case m.Template == "":
	case m.InjectsAnyway():
		text = m.Template + ": " + text
	default:
		text = "The pods do not get the sidecar " + m.Template + ": " + text
		if related == nil {
			text = strings.Replace(text, "The pods do", "The pod does", 1)
		}
	}
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "?") {
		text += "."
	}
	note := shortenTo(text, mostText-len(command)) + command
	hash := fnv.New64a()
	for _, part := range []string{string(about.UID), m.Template, string(m.Code), note} {
		_, _ = hash.Write(append([]byte(part), 0)) // it returns no error
	}
	const most = 200 // of 253 bytes
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.pillion-%x", strings.TrimRight(about.Name[:min(len(about.Name), most)], "-."), hash.Sum64())},
		EventTime:           metav1.NewMicroTime(e.now()),
		ReportingController: manifests.ControllerName, ReportingInstance: e.self,
		Action: "Inject", Reason: m.Reason(), Type: corev1.EventTypeWarning,
		Regarding: about, Related: related, Note: note,
	}
}

// explainKind returns the kind of an object as pillion explain names it, or "".
func explainKind(o corev1.ObjectReference) string {
	if cluster.Explains(o.APIVersion, o.Kind) {
		return strings.ToLower(o.Kind)
	}
	return ""
}

// madeByControllers reports whether an owner is of a kind that users rarely write, because they write the objects that own it: a
// ReplicaSet or a Job. It also returns the resource of the kind.
func madeByControllers(o metav1.OwnerReference) (resource string, ok bool) {
	switch {
	case o.Kind == "ReplicaSet" && o.APIVersion == appsv1.SchemeGroupVersion.String():
		return "replicasets", true
	case o.Kind == "Job" && o.APIVersion == batchv1.SchemeGroupVersion.String():
		return "jobs", true
	}
	return "", false
}
