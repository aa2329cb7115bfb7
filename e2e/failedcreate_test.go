// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// maxEvent is how much text an event takes (events.k8s.io/v1 Event.note).
const maxEvent = 1024

// TestFailedCreate checks that an event of the ReplicaSet shows the owner of a Deployment why it
// has no pods.
func TestFailedCreate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("very ", 1000) + "long"
	cases := []struct {
		name string
		edit func(p *corev1.Pod, template string)
		want []string
	}{
		{
			"one finding", inContainer(swapImage),
			[]string{"guard: altered at " + sidecarPath + "/image: ", `"registry.example/evil:1"`, `"registry.example/guard:1.4.2"`},
		}, {
			"several findings", func(p *corev1.Pod, template string) {
				c := findContainer(p, template)
				swapImage(c)
				c.Args = []string{"--level=debug"}
				stripMount(&p.Spec.Containers[0], "/var/"+template)
			},
			[]string{"3 findings: (1) guard: ", "(2) guard: ", "(3) guard: "},
		}, {
			"more than fits", func(p *corev1.Pod, template string) {
				c := findContainer(p, template)
				swapImage(c)
				c.Args, c.Command = []string{long}, []string{long}
				c.Env = []corev1.EnvVar{{Name: "GUARD_DIR", Value: long}}
				c.Ports = []corev1.ContainerPort{{ContainerPort: 15091}}
				c.SecurityContext = nil
				withoutVolume(p, template)
			},
			[]string{" findings: (1) guard: ", "; and "},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Edit(func(p *corev1.Pod) {
				if findContainer(p, "guard") != nil {
					c.edit(p, "guard")
				}
			})})
			deployment := createDeployment(t, ns, requests("guard"))
			message := failedCreate(t, ns)
			t.Logf("%d bytes: %s", len(message), message)
			if len(message) > maxEvent {
				t.Errorf("the event has %d bytes and holds %d", len(message), maxEvent)
			}
			begin := `Error creating: admission webhook "namespace.validate.pillion.dev" denied the request: `
			if !strings.HasPrefix(message, begin) {
				t.Errorf("the event begins otherwise than %q", begin)
			}
			for _, part := range c.want {
				if !strings.Contains(message, part) {
					t.Errorf("the event does not say %q", part)
				}
			}
			wantReplicaFailure(t, ns, deployment, message)
		})
	}
}

func createDeployment(t *testing.T, ns string, edits ...func(*corev1.Pod)) string {
	t.Helper()
	pod := newPod("", edits...)
	template := corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	_, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), &appsv1.Deployment{
		ObjectMeta: workloadMeta(),
		Spec:       appsv1.DeploymentSpec{Selector: webSelector(), Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return workloadMeta().Name
}

// failedCreate waits for a ReplicaSet to say why it cannot make a pod.
func failedCreate(t *testing.T, ns string) string {
	t.Helper()
	var message string
	eventually(t, "the ReplicaSet says that it cannot make a pod", func(ctx context.Context) error {
		events, err := env.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate,involvedObject.kind=ReplicaSet"})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("no event")
		}
		message = events.Items[0].Message
		return nil
	})
	return message
}

// wantReplicaFailure checks that kubectl describe shows the same message at the Deployment.
func wantReplicaFailure(t *testing.T, ns, name, message string) {
	t.Helper()
	eventually(t, "the Deployment says so too", func(ctx context.Context) error {
		deployment, err := env.Client.AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range deployment.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				return wantEqual("condition", "Error creating: "+c.Message, message)
			}
		}
		return errors.New("no condition ReplicaFailure")
	})
}
