// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// otherInjector is a policy that adds a variable and a mount to every container of a new pod, also to those that Pillion adds.
const otherInjector = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: other-%[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |
        Object{spec: Object.spec{
          volumes: [Object.spec.volumes{name: "other", emptyDir: Object.spec.volumes.emptyDir{medium: "Memory"}}],
          initContainers: object.spec.?initContainers.orValue([]).map(c, Object.spec.initContainers{name: c.name,
            env: [Object.spec.initContainers.env{name: "OTHER", value: "1"}],
            volumeMounts: [Object.spec.initContainers.volumeMounts{name: "other", mountPath: "/other"}]}),
          containers: object.spec.containers.map(c, Object.spec.containers{name: c.name,
            env: [Object.spec.containers.env{name: "OTHER", value: "1"}],
            volumeMounts: [Object.spec.containers.volumeMounts{name: "other", mountPath: "/other"}]})
        }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: other-%[1]s}
spec:
  policyName: other-%[1]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`

// testRolloutBeside changes a sidecar to which another injector has added something: in place, and then with new pods.
func testRolloutBeside(t *testing.T, ns string) {
	apply(t, ns, fmt.Sprintf(otherInjector, ns))
	t.Cleanup(func() { removeOtherInjector(t, ns) })
	s := sidecar{name: "beside", image: StandIn, memory: "16Mi", probe: true}
	eventually(t, "the other injector adds to a pod", func(ctx context.Context) error {
		made, err := createdNow(ctx, ns, &corev1.Pod{})
		if err != nil {
			return err
		}
		return hasOther(made)
	})
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", 3, s.name, ""))
	r := running(t, ns, 3)
	wantOther := func() {
		t.Helper()
		for _, pod := range podsIn(t, ns) {
			if err := hasOther(&pod); err != nil {
				t.Error(err)
			}
		}
	}
	wantOther()

	s.image, s.memory = NextStandIn, "24Mi"
	s.use(t, ns, nil)
	mustRollout(t, ns)
	r.wantAll(t, s)
	wantOther()

	s.args = `, "-linger=1ms"`
	s.use(t, ns, nil)
	mustRollout(t, ns)
	r.wantReplaced(t, s)
	wantOther()
}

// removeOtherInjector deletes the policy and its binding.
func removeOtherInjector(t *testing.T, ns string) {
	ctx, cancel := context.WithTimeout(context.Background(), waitWithin)
	defer cancel()
	if out, err := env.RunKubectl(ctx, nil, "delete", "mutatingadmissionpolicybinding/other-"+ns, "mutatingadmissionpolicy/other-"+ns); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// hasOther returns an error unless all containers of a pod have what the other injector adds.
func hasOther(pod *corev1.Pod) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		env := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "OTHER" })
		mount := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/other" })
		if !env || !mount {
			return fmt.Errorf("container %s of pod %s lacks what the other injector adds: %v, %v", c.Name, pod.Name, c.Env, c.VolumeMounts)
		}
	}
	return nil
}

// testRolloutScaled lets a HorizontalPodAutoscaler double the pods of a Deployment in the middle of a rollout, and then leave two.
// The autoscaler has no metrics, and keeps the number between its bounds.
func testRolloutScaled(t *testing.T, ns string) {
	const before, more, fewer = 6, 9, 2
	s := sidecar{name: "scaled", image: StandIn, memory: "16Mi", probe: true, args: `, "-ready=5s"`}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", before, s.name, ""))
	r := running(t, ns, before)
	s.image = NextStandIn
	s.use(t, ns, nil)
	command := startRollout(t, ns, "--max-unavailable", "1", "--min-ready", "0s", "--bake", "0s", "--first", "0", "--waves", "100%")
	eventually(t, "a pod has the new image", func(ctx context.Context) error {
		_, err := newImage(ctx, ns, s)
		return err
	})
	scale := func(pods int) {
		t.Helper()
		apply(t, ns, fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: %d, maxReplicas: %[1]d}
`, pods))
		eventually(t, fmt.Sprintf("the autoscaler wants %d pods", pods), func(ctx context.Context) error {
			out, err := env.RunKubectl(ctx, nil, "-n", ns, "get", "deployment/web", "-o", "jsonpath={.spec.replicas}")
			if err == nil && string(out) != fmt.Sprint(pods) {
				err = errors.New(string(out))
			}
			return err
		})
	}
	scale(more)
	if out := command.output.String(); strings.Contains(out, "Updated") {
		t.Errorf("the rollout has ended before the autoscaler has changed the number of pods, so this test shows nothing: %s", out)
	}
	scale(fewer)
	if err := command.Wait(); err != nil {
		t.Errorf("%v: %s", err, command.output)
	}
	for _, pod := range readyPods(t, ns, "", fewer) {
		err := runs(s, &pod)
		if was, old := r.before[pod.Name]; old {
			err = errors.Join(err, untouched(&was, &pod))
		}
		if err != nil {
			t.Error(err)
		}
	}
	if out, err := rollout(t, ns, "--dry-run"); err != nil || !strings.Contains(out, "All pods are current") {
		t.Errorf("the next rollout: %v: %s", err, out)
	}
}
