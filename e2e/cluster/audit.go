// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

const (
	mutationPrefix = "mutation.webhook.admission.k8s.io/"
	patchPrefix    = "patch.webhook.admission.k8s.io/"
	failOpenPrefix = "failed-open.mutation.webhook.admission.k8s.io/"
)

// AuditLog reads the API server's audit log as it grows.
type AuditLog struct {
	path string

	mu     sync.Mutex
	offset int64
	events []Event
}

// Event is one answered request for a pod or one of its subresources.
type Event struct{ auditv1.Event }

// Call is one call of a mutating webhook, as the API server recorded it.
type Call struct {
	Round         string `json:"-"` // round_0 or round_1
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       bool   `json:"mutated"`
}

// String is what a test compares: "round_0 pillion/namespace.mutate.pillion.dev mutated=true".
func (c Call) String() string {
	return fmt.Sprintf("%s %s/%s mutated=%t", c.Round, c.Configuration, c.Webhook, c.Mutated)
}

// Calls returns the calls of a configuration's mutating webhooks in order, or of all
// configurations if it is empty.
func (e Event) Calls(configuration string) []Call {
	var keys []string
	for key := range e.Annotations {
		if strings.HasPrefix(key, mutationPrefix) {
			keys = append(keys, key)
		}
	}
	sort.Slice(keys, func(i, j int) bool { // indices are not padded
		return len(keys[i]) < len(keys[j]) || len(keys[i]) == len(keys[j]) && keys[i] < keys[j]
	})
	sort.SliceStable(keys, func(i, j int) bool { return round(keys[i]) < round(keys[j]) })
	var calls []Call
	for _, key := range keys {
		call := Call{Round: round(key)}
		if json.Unmarshal([]byte(e.Annotations[key]), &call) == nil && (configuration == "" || call.Configuration == configuration) {
			calls = append(calls, call)
		}
	}
	return calls
}

func round(key string) string {
	_, name, _ := strings.Cut(key, "/")
	name, _, _ = strings.Cut(name, "_index_")
	return name
}

// Patch returns the patch that the API server applied for a configuration's call in a round,
// or nil if there was none.
func (e Event) Patch(configuration, inRound string) json.RawMessage {
	for key, value := range e.Annotations {
		var recorded struct {
			Configuration string          `json:"configuration"`
			Patch         json.RawMessage `json:"patch"`
		}
		if strings.HasPrefix(key, patchPrefix) && round(key) == inRound &&
			json.Unmarshal([]byte(value), &recorded) == nil && recorded.Configuration == configuration {
			return recorded.Patch
		}
	}
	return nil
}

// FailedOpen returns the mutating webhooks that could not be called and were skipped.
func (e Event) FailedOpen() []string {
	var names []string
	for key, value := range e.Annotations {
		if strings.HasPrefix(key, failOpenPrefix) {
			names = append(names, value)
		}
	}
	sort.Strings(names)
	return names
}

// Reason returns Pillion's annotation about a template.
func (e Event) Reason(template string) string { return e.Reasons()[template] }

// Reasons returns Pillion's annotations about all templates.
func (e Event) Reasons() map[string]string { return e.said(".mutate.pillion.dev") }

// Judgement returns the annotations of Pillion's validating webhook: each template with
// findings, and the verdict.
func (e Event) Judgement() map[string]string { return e.said(".validate.pillion.dev") }

// Foretold returns the annotations of Pillion's shadow webhook.
func (e Event) Foretold() map[string]string { return e.said(".shadow.pillion.dev") }

// said returns the annotations of one webhook. Templates that were not requested share an
// annotation.
func (e Event) said(by string) map[string]string {
	const notRequested = "not_requested"
	said := map[string]string{}
	for key, value := range e.Annotations {
		webhook, about, ok := strings.Cut(key, "/")
		switch {
		case !ok || !strings.HasSuffix(webhook, by):
		case about == notRequested:
			for template := range strings.SplitSeq(value, ", ") {
				said[template] = notRequested + ": by this pod"
			}
		default:
			said[about] = value
		}
	}
	return said
}

// CreatesPod reports whether the request created the pod, or was denied. It finds pods with a
// generated name by that name or by the generateName.
func (e Event) CreatesPod(namespace, name string) bool {
	ref := e.ObjectRef
	if ref == nil || ref.Resource != "pods" || ref.Subresource != "" || ref.Namespace != namespace ||
		e.Verb != "create" && e.Verb != "patch" {
		return false
	}
	if ref.Name != "" {
		return ref.Name == name // avoids decoding a pod
	}
	if pod := e.Response(); pod != nil && pod.Name == name {
		return true
	}
	pod := e.Request()
	return pod != nil && pod.Name == "" && pod.GenerateName == name
}

// Request returns the pod in the request, or nil if there is none.
func (e Event) Request() *corev1.Pod {
	if e.RequestObject == nil {
		return nil
	}
	return decodePod(e.RequestObject.Raw)
}

// Response returns the pod in the response, or nil if there is none.
func (e Event) Response() *corev1.Pod {
	if e.ResponseObject == nil {
		return nil
	}
	return decodePod(e.ResponseObject.Raw)
}

func decodePod(raw []byte) *corev1.Pod {
	pod := &corev1.Pod{}
	if json.Unmarshal(raw, pod) != nil || pod.Kind != "Pod" {
		return nil
	}
	return pod
}

// Find returns the first matching event that is in the log now.
func (l *AuditLog) Find(match func(Event) bool) (Event, bool, error) {
	events, err := l.read()
	if i := slices.IndexFunc(events, match); i >= 0 {
		return events[i], true, err
	}
	return Event{}, false, err
}

// Wait returns the first matching event. If necessary, it waits, because a client may get its
// response before the event is in the log.
func (l *AuditLog) Wait(ctx context.Context, match func(Event) bool) (Event, error) {
	var poll poller
	for {
		e, ok, err := l.Find(match)
		if ok || err != nil {
			return e, err
		}
		select {
		case <-ctx.Done():
			return Event{}, fmt.Errorf("no such event in the audit log: %w", ctx.Err())
		case <-poll.next():
		}
	}
}

// read parses the lines that were added since the last call, and returns all events.
func (l *AuditLog) read() ([]Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return nil, err
	}
	added, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	added = added[:bytes.LastIndexByte(added, '\n')+1]
	l.offset += int64(len(added))
	for line := range bytes.Lines(added) {
		e, err := parseEvent(line)
		if err != nil {
			return nil, err
		}
		l.events = append(l.events, e)
	}
	return l.events, nil
}

// parseEvent parses a line. A killed API server may leave an incomplete event, and the next
// one continues in the same line.
func parseEvent(line []byte) (e Event, err error) {
	line = line[max(bytes.LastIndex(line, []byte(`{"kind":"Event","apiVersion":"audit.k8s.io/`)), 0):]
	if err := json.Unmarshal(line, &e.Event); err != nil {
		return e, fmt.Errorf("audit log: %w", err)
	}
	return e, nil
}

// Each calls f with every event in the log whose line contains a string. It keeps no events.
func (l *AuditLog) Each(text string, f func(Event)) error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer file.Close()
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(text)) {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			return err
		}
		f(e)
	}
}
