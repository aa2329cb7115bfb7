// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// rolloutManager is the field manager that owns the conditions of a rollout, and status.failed. So the status of the template and
// that of its rollout are written independently of each other.
const rolloutManager = "pillion-controller-rollout"

// change is a new value of a condition.
type change struct {
	kind, reason, message string
	is                    bool
}

// nextAdvice ends the message about pods that have failed.
func (t *subject) nextAdvice() string {
	if t.undoesFailure() {
		return ". To continue, change the template."
	}
	return ". To continue, change the template, or fix or delete the pod."
}

// conditionDegraded returns the condition Degraded, from what has stopped the rollout.
func (t *subject) conditionDegraded() change {
	var namespaces, reasons []string
	reason := v1alpha1.ReasonUndone
	for i := range t.status.Failed {
		f := &t.status.Failed[i]
		text := f.Reason
		if t.undoesFailure() {
			text = undoText(f)
		}
		namespaces, reasons = append(namespaces, f.Namespace), append(reasons, text)
		if f.Undo == nil || !f.Undo.Done {
			reason = v1alpha1.ReasonFailed
		}
	}
	if len(reasons) == 0 {
		return change{v1alpha1.ConditionDegraded, v1alpha1.ReasonAsExpected, "No pod has failed.", false}
	}
	message := reasons[0] + t.nextAdvice()
	if len(reasons) > 1 {
		message = fmt.Sprintf("The rollout has stopped in %d namespaces (%s): %s%s", len(reasons), strings.Join(namespaces, ", "), strings.Join(reasons, "; "), t.nextAdvice())
	}
	return change{v1alpha1.ConditionDegraded, reason, shortenMessage(message), true}
}

// undoText returns the report about a failure whose rollout is undone: first how far that is, because the reason may be long.
func undoText(f *v1alpha1.FailedRollout) string {
	u := f.Undo
	if u == nil {
		u = &v1alpha1.RolloutUndo{}
	}
	text := "No pod was put back to the content before the rollout"
	if u.Pods > 0 {
		text = explain.Plural(int(u.Pods), "pod") + map[bool]string{true: " was", false: " were"}[u.Pods == 1] + " put back to the content before the rollout"
	}
	switch {
	case u.Done:
	case u.Pods == 0:
		text = "The rollout is being undone"
	default:
		text = "The rollout is being undone, and " + text
	}
	if u.Message != "" {
		text += " (" + u.Message + ")"
	}
	return text + ", because of this failure: " + f.Reason
}

func notPaused() change {
	return change{v1alpha1.ConditionPaused, v1alpha1.ReasonNotPaused, "The rollout is not paused.", false}
}

func conditionProgressing(is bool, reason, message string) change {
	return change{v1alpha1.ConditionProgressing, reason, shortenMessage(message), is}
}

// writePaused reports that a rollout is paused. What has failed before remains.
func (r *rollouts) writePaused(ctx context.Context, t *subject) {
	const message = "spec.rollout.paused is true."
	r.writeConditions(ctx, t, conditionProgressing(false, v1alpha1.ReasonPaused, message), change{v1alpha1.ConditionPaused, v1alpha1.ReasonPaused, message, true})
}

// writeNotUsed reports that a rollout does not go on because Pillion does not use the template any more.
func (r *rollouts) writeNotUsed(ctx context.Context, t *subject) {
	ready, progressing := readyCondition(&t.status), meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionProgressing)
	if ready.Status != metav1.ConditionFalse || ready.ObservedGeneration != t.object.GetGeneration() || progressing == nil || progressing.Status != metav1.ConditionTrue {
		return
	}
	r.writeConditions(ctx, t, conditionProgressing(false, v1alpha1.ReasonCannotPlan, "Pillion does not use the template. The condition Ready has the reason."), notPaused())
}

// writeProgress reports a wave.
func (r *rollouts) writeProgress(ctx context.Context, t *subject, message string) {
	r.writeConditions(ctx, t, conditionProgressing(true, v1alpha1.ReasonUpdating, message), t.conditionDegraded(), notPaused())
}

// writeComplete reports that nothing is left to do, in the namespaces in which no pod has failed.
func (r *rollouts) writeComplete(ctx context.Context, t *subject, all []*rollout.Workload) {
	if len(t.status.Failed) > 0 {
		r.writeStopped(ctx, t)
		return
	}
	reason, message := v1alpha1.ReasonComplete, "All pods are current in the namespaces with the label pillion.dev/rollout: enabled."
	if text := describeLeft(all, "updated"); text != "" {
		if reason, message = v1alpha1.ReasonIncomplete, text; t.rolloutBounds().InPlace {
			message += " The strategy InPlaceOrRestart, or the command pillion rollout, can restart workloads."
		}
	}
	was := meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionProgressing)
	if was != nil && was.Status == metav1.ConditionTrue {
		r.event(t.object, corev1.EventTypeNormal, "Rollout"+reason, shortenMessage(message))
	}
	r.writeConditions(ctx, t, conditionProgressing(false, reason, message), t.conditionDegraded(), notPaused())
}

// noteFailure reports a failure as soon as it happens. The rollout may go on in other namespaces.
func (r *rollouts) noteFailure(ctx context.Context, t *subject, e *executor.Event) {
	f := v1alpha1.FailedRollout{Namespace: e.Namespace, Workload: e.Workload, Pod: e.Pod, Reason: shortenMessage(e.Message)}
	if len(e.Incomplete) > 0 {
		f.Reason = shortenMessage(e.Message + "; half done: " + strings.Join(e.Incomplete, ", "))
	}
	if slices.ContainsFunc(t.status.Failed, func(other v1alpha1.FailedRollout) bool { return other.Namespace == f.Namespace }) {
		return
	}
	t.status.Failed = append(slices.Clone(t.status.Failed), f)
	now := r.getSubject(t.entry.Key())
	if now != nil && now.entry.UID == t.entry.UID && now.isReady() && now.status.Revision == t.status.Revision && now.entry.Generation != t.object.GetGeneration() {
		// A user has changed only spec.rollout meanwhile, so this failure is one of the present content, and those before are tried again.
		t.object.SetGeneration(now.entry.Generation)
		t.status.Failed = []v1alpha1.FailedRollout{f}
	}
	next := t.nextAdvice()
	if t.undoesFailure() {
		next = ". The pods that have changed in place are put back" + next
	}
	r.event(t.object, corev1.EventTypeWarning, "RolloutStopped", shortenMessage(f.Reason+next))
	r.writeConditions(ctx, t, t.conditionDegraded())
}

// writeStopped reports that a rollout has stopped because pods have failed.
func (r *rollouts) writeStopped(ctx context.Context, t *subject) {
	r.writeConditions(ctx, t, conditionProgressing(false, v1alpha1.ReasonStopped, "The condition Degraded has the reason."), t.conditionDegraded(), notPaused())
}

// stopForError reports that a rollout has stopped for another reason, such as a right that is missing.
func (r *rollouts) stopForError(ctx context.Context, t *subject, err error) {
	reason, next := v1alpha1.ReasonFailed, "To continue, change the template."
	if missingRight(err) {
		reason, next = v1alpha1.ReasonForbidden, "The component rollout has the rights that the controller needs."
	}
	message := shortenMessage(fmt.Sprintf("%s. %s", err, next))
	r.event(t.object, corev1.EventTypeWarning, "RolloutStopped", message)
	r.writeConditions(ctx, t, conditionProgressing(false, v1alpha1.ReasonStopped, "The condition Degraded has the reason."),
		change{v1alpha1.ConditionDegraded, reason, message, true}, notPaused())
}

// otherFor is how long the controller waits silently for the content of a template that the API server has.
const otherFor = 30 * time.Second

// writeCannotPlan reports that there is no plan. It returns after how long to try again.
func (r *rollouts) writeCannotPlan(ctx context.Context, t *subject, err error) (wait time.Duration) {
	if errors.Is(err, cluster.ErrOtherContent) {
		p, now := r.lastPlan(t.entry.Key()), r.now()
		if p.other.IsZero() {
			p.other = now
			r.notePlan(t.entry.Key(), p)
		}
		if now.Sub(p.other) < otherFor { // the event about the change has not arrived yet
			return settleTime
		}
	}
	message := err.Error() + "."
	if missingRight(err) {
		message += " The component rollout has the rights that the controller needs."
	}
	changes := []change{conditionProgressing(false, v1alpha1.ReasonCannotPlan, message), notPaused()}
	if t.hasStopped() { // otherwise, status.failed may be that of an earlier content
		changes = append(changes, t.conditionDegraded())
	}
	r.writeConditions(ctx, t, changes...)
	return retryAfter
}

// clearStatus removes what was reported about a rollout.
func (r *rollouts) clearStatus(ctx context.Context, t *subject) {
	if len(t.written.Failed) > 0 || len(t.written.Conditions) > 0 || t.unsaved != nil {
		r.saveReport(ctx, t, v1alpha1.Status{})
	}
}

// writeConditions changes conditions, and writes what has failed. Other conditions of the rollout stay.
func (r *rollouts) writeConditions(ctx context.Context, t *subject, changes ...change) {
	now := rolloutStatus(&t.status)
	for _, c := range changes {
		condition := metav1.Condition{Type: c.kind, Reason: c.reason, Message: c.message, Status: metav1.ConditionFalse, ObservedGeneration: t.object.GetGeneration(), LastTransitionTime: metav1.NewTime(r.now())}
		if c.is {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&now.Conditions, condition)
	}
	if t.unsaved != nil || !equality.Semantic.DeepEqual(t.written, now) {
		r.saveReport(ctx, t, now)
	}
}

// saveReport writes a report about a rollout. If that is impossible, the rollout goes on to the end of its turn, and t.unsaved is the
// reason. The report counts already, and the next request writes it before anything else.
func (r *rollouts) saveReport(ctx context.Context, t *subject, report v1alpha1.Status) {
	t.setReport(report)
	object, err := statusObject(t.object, &report)
	if err == nil {
		err = client.IgnoreNotFound(r.apply(ctx, object))
	}
	if t.unsaved = err; err != nil {
		r.log.Error("the status cannot be written", "template", client.ObjectKeyFromObject(t.object).String(), "error", err)
	}
	w := wrote{t.entry.UID, r.now(), report, err}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote[t.entry.Key()] = w
}

// describeLeft returns a sentence about the pods that the controller does not change, or "". What is the word for the change, for
// example "updated".
func describeLeft(all []*rollout.Workload, what string) string {
	pods, workloads, example := 0, 0, ""
	for _, w := range all {
		if len(w.Behind) == 0 || w.Acts() {
			continue
		}
		pods += len(w.Behind)
		if workloads++; example == "" {
			example = fmt.Sprintf("%s in the namespace %s: %s", w.Title(), w.Namespace, w.Why)
		}
	}
	if pods == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s not %s, for example %s.", explain.Plural(pods, "pod"), explain.Plural(workloads, "workload")+map[bool]string{true: " is", false: " are"}[pods == 1], what, example)
}

// missingRight reports whether an error means that the controller lacks a right. An object that an admission plugin denies gives the
// same status, Forbidden, and differs only in its message.
func missingRight(err error) bool {
	return err != nil && apierrors.IsForbidden(err) && (strings.Contains(err.Error(), " cannot ") && strings.Contains(err.Error(), " resource ") || strings.Contains(err.Error(), "you are not allowed to"))
}
