// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/templates"
)

// The names of pods that are sent as a dry run, and of their only container.
const (
	probePrefix    = "pillion-check-"
	probeContainer = "check"
)

// probePod returns a pod that any namespace should accept: it meets the Pod Security level
// Restricted and has limits. Nothing runs it.
func probePod() *corev1.Pod {
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.Pod{Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: probeContainer, Image: "registry.k8s.io/pause:3.10",
			Resources:       corev1.ResourceRequirements{Requests: small, Limits: small},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}}
}

// probeNamespace sends a pod to a namespace as a dry run, and compares what it gets with what the engine
// expects.
func (k *survey) probeNamespace(ctx context.Context, ns *unstructured.Unstructured) (p check.Probe, err error) {
	p.Namespace = ns.GetName()
	if known := k.namespaceFacts(ns); known.Excluded != "" {
		p.Unknown = "no pod is injected in the namespace " + p.Namespace + ": " + known.Excluded
		return p, nil
	}
	pod := probePod()
	if ns.GetLabels()[inject.LabelInject] != inject.Enabled && !k.matchesWebhook(ns, "") {
		pod.Labels = map[string]string{inject.LabelInject: inject.Enabled}
	}
	text, err := k.requestTemplate(ns, pod, &p)
	if err != nil {
		return p, err
	}
	made, why, err := k.dryRunPromptly(ctx, p.Namespace, text)
	switch {
	case why != "":
		p.Timeout = why
	case mayNotCreate(err):
		p.Unknown, p.NoRight = "you are not allowed to create pods in the namespace "+p.Namespace+", even for a dry run", true
		k.noteReported(ctx, ns, &p)
	case isAnswer(err):
		p.Denied = err.Error()
	case err != nil:
		return p, err
	default:
		return p, k.noteGot(made, &p)
	}
	return p, nil
}

// noteReported finds out without a pod whether Pillion keeps pods from being created in a namespace: by what the objects there that
// create pods report. What cannot be read shows nothing: that no pod can be sent stays the reason.
func (k *survey) noteReported(ctx context.Context, ns *unstructured.Unstructured, p *check.Probe) {
	count := status.NewCount(k.injector, *k.namespaceScope(ns))
	for _, kind := range Kinds() {
		if kind.makes != "pods" {
			continue
		}
		err := k.eachObject(ctx, k.Resource(kind.Resource()).Namespace(p.Namespace), "", func(object *unstructured.Unstructured) error {
			f, err := k.findFailing(ctx, count, kind, object)
			if f == nil || err != nil {
				return err
			}
			if why, _ := explain.ParseDenial(f.Why, explain.Help{}); why.Pillions {
				p.Denied, p.Of, p.Unknown, p.NoRight = f.Why, f.Kind+"/"+f.Name, "", false
				return errEnough
			}
			return nil
		}, func() {})
		if errors.Is(err, errEnough) {
			return
		}
	}
}

const (
	// promptly is how long the API server may take for a pod until check tries to find out whether that is because of Pillion. It is less
	// than timeoutSeconds of the webhooks, and Pillion answers within milliseconds.
	promptly = 4 * time.Second
	// atOnce is how long it may take then for a pod that skips the webhooks.
	atOnce = 2 * time.Second
)

// dryRunPromptly is dryRun. If Pillion does not answer the API server, which then waits for each of the webhooks in turn,
// dryRunPromptly does not wait as long, and returns what shows that.
func (c *Client) dryRunPromptly(ctx context.Context, namespace string, pod []byte) (made *unstructured.Unstructured, timeout string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		made *unstructured.Unstructured
		err  error
	}
	answers := make(chan answer, 1)
	var request sync.WaitGroup
	request.Go(func() {
		made, err := c.dryRun(ctx, namespace, probePrefix, pod)
		answers <- answer{made, err}
	})
	defer request.Wait()
	defer cancel()
	select {
	case a := <-answers:
		return a.made, "", a.err
	case <-time.After(promptly):
	}
	if c.acceptsUninjected(ctx, namespace, pod) {
		return nil, fmt.Sprintf("there is no answer within %s, and a pod that skips Pillion's webhooks is accepted within %s", promptly, atOnce), nil
	}
	a := <-answers
	return a.made, "", a.err
}

// acceptsUninjected reports whether the API server promptly accepts a pod that differs only in being a mirror pod, for which the
// conditions of Pillion's webhooks are false. Then it is Pillion that another pod waits for. A mirror pod is bound to a node.
func (c *Client) acceptsUninjected(ctx context.Context, namespace string, text []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return false
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, "check")
	pod.Spec.NodeName = "check"
	text, err := json.Marshal(pod)
	if err == nil {
		_, err = c.dryRun(ctx, namespace, probePrefix, text)
	}
	return err == nil
}

// isAnswer reports whether an error is an answer of the API server, and not of the network.
func isAnswer(err error) bool {
	_, ok := errors.AsType[*apierrors.StatusError](err)
	return ok
}

// requestTemplate returns the pod as JSON. If no template would be injected, the pod requests the first template that would be injected
// then.
func (k *survey) requestTemplate(ns *unstructured.Unstructured, pod *corev1.Pod, p *check.Probe) ([]byte, error) {
	text, decisions, err := k.noteExpected(ns, pod, p)
	if err != nil || len(p.Expected) > 0 {
		return text, err
	}
	for _, d := range decisions {
		if d.Code != inject.CodeNotRequested {
			continue
		}
		asking := pod.DeepCopy()
		asking.Annotations = map[string]string{inject.AnnotationTemplates: d.Template}
		with, _, err := k.noteExpected(ns, asking, p)
		if err != nil {
			return nil, err
		}
		if len(p.Expected) > 0 {
			p.Requested = d.Template
			return with, nil
		}
	}
	return text, nil
}

// noteExpected records which templates the engine injects into a pod. It returns the pod as JSON and all decisions.
func (k *survey) noteExpected(ns *unstructured.Unstructured, pod *corev1.Pod, p *check.Probe) ([]byte, []inject.Decision, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, nil, err
	}
	r, err := k.injector.Inject(inject.Request{Operation: "CREATE", DryRun: true, OptedIn: true, Namespace: k.namespaceScope(ns).Namespace, Object: text})
	if err != nil {
		return nil, nil, err
	}
	for i := range r.Decisions {
		if r.Decisions[i].Code == inject.CodeInjected {
			p.Expected = append(p.Expected, r.Decisions[i].Template)
		}
	}
	return text, r.Decisions, nil
}

// noteGot records which templates and containers the API server's answer has.
func (k *survey) noteGot(made *unstructured.Unstructured, p *check.Probe) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, pod); err != nil {
		return err
	}
	set := k.injector.For(p.Namespace).Set()
	has := func(t *templates.Template) bool {
		return pod.Annotations[t.Annotation(templates.AnnotationInjected)] != ""
	}
	for _, t := range set.Templates {
		// A template that replaces another one records that for both.
		other := slices.ContainsFunc(set.Templates, func(other *templates.Template) bool { return other.Spec.Replaces == t.Name && has(other) })
		if has(t) && !other {
			p.Got = append(p.Got, t.Name)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != probeContainer {
			p.Containers = append(p.Containers, c.Name)
		}
	}
	return nil
}

// checkSidecars reports whether the API server keeps the restartPolicy of an init container.
func (c *Client) checkSidecars(ctx context.Context, namespace string) (s check.Sidecars, err error) {
	pod := probePod()
	sidecar := pod.Spec.Containers[0]
	sidecar.Name, sidecar.RestartPolicy = "sidecar", new(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{sidecar}
	text, err := json.Marshal(pod)
	if err != nil {
		return s, err
	}
	made, err := c.dryRun(ctx, namespace, probePrefix, text)
	switch {
	case mayNotCreate(err):
		s.Unknown = "you are not allowed to create pods in the namespace " + namespace + ", even for a dry run"
		return s, nil
	case isAnswer(err):
		s.Unknown = "the API server denies a dry-run pod in the namespace " + namespace + ": " + strings.TrimSpace(err.Error())
		return s, nil
	case err != nil:
		return s, err
	}
	containers, _, err := unstructured.NestedSlice(made.Object, "spec", "initContainers")
	s.Supported = slices.ContainsFunc(containers, func(item any) bool {
		fields, ok := item.(map[string]any)
		return ok && fields["restartPolicy"] == string(corev1.ContainerRestartPolicyAlways)
	})
	return s, err
}
