// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// The templates of TestController: one of the cluster, and one of a namespace, with an annotation that
// they add.
const (
	clusterTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: %s}
spec: {default: true, pod: {metadata: {annotations: {example.com/agent: %s}}}}
`
	teamTemplate = `apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: %s, namespace: team-a}
spec: {pod: {metadata: {annotations: {example.com/agent: %s}}}}
`
	wrongTemplate = `"${nonsense}"`
)

// controlled is a control plane with controllers.
type controlled struct{ *cluster.Cluster }

// TestController checks what pillion controller reports about templates on a real API server: whether
// they are used, their revision, their pods, and Events. It starts before the kinds of templates are
// installed, and a second one takes over when it fails.
func TestController(t *testing.T) {
	t.Parallel()
	c := &controlled{newCluster(t)}
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: pillion-system}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n", "apply", "-f", "-")
	c.kubectl(t, "", "apply", "--server-side", "-k", filepath.Join(root, "manifests", "controller"))
	first := c.start(t)
	eventually(t, "it is not ready without the kinds", func(ctx context.Context) error {
		return wantReadiness(ctx, first, http.StatusServiceUnavailable, "are their kinds installed?")
	})
	second := c.start(t)
	c.kubectl(t, "", "apply", "--server-side", "-k", filepath.Join(root, "manifests", "crds"))
	eventually(t, "both are ready", func(ctx context.Context) error {
		return errors.Join(wantReadiness(ctx, first, http.StatusOK, "ok\n"), wantReadiness(ctx, second, http.StatusOK, "ok\n"))
	})

	t.Run("valid and invalid", c.validity)
	t.Run("name taken", c.nameTaken)
	t.Run("pods", c.pods)
	t.Run("missing", c.missing)
	t.Run("columns", func(t *testing.T) {
		age := regexp.MustCompile(`\d+m?\d*s`)
		got := age.ReplaceAllString(c.kubectl(t, "", "get", "clustersidecartemplates,sidecartemplates", "-A"), "AGE")
		wantGolden(t, filepath.Join("testdata", "controller", "columns.txt"), got)
	})
	t.Run("takeover", func(t *testing.T) {
		c.apply(t, clusterTemplate, "late", "one")
		c.wantReady(t, "clustersidecartemplate/late", "True Valid")
		if n := len(second.Logged("this replica leads")); n != 0 {
			t.Fatal("both replicas lead")
		}
		first.Kill()
		c.apply(t, clusterTemplate, "late", wrongTemplate)
		c.wantReady(t, "clustersidecartemplate/late", "False Invalid") // after the Lease has expired
	})
	if err := second.Stop(); err != nil {
		t.Errorf("pillion controller after SIGTERM: %v\n%s", err, second.LogTail())
	}
	if holder := c.kubectl(t, "", "get", "lease", "-n", "pillion-system", "pillion-controller", "-o", "jsonpath={.spec.holderIdentity}"); holder != "" {
		t.Errorf("the Lease is not released: %s", holder)
	}
}

func (c *controlled) validity(t *testing.T) {
	const agent = "clustersidecartemplate/agent"
	c.apply(t, clusterTemplate, "agent", "one")
	c.wantReady(t, agent, "True Valid")
	revision := c.field(t, agent, "{.status.revision}")
	if len(revision) != 12 {
		t.Errorf("the revision is %q", revision)
	}
	since := c.field(t, agent, "{.status.conditions[0].lastTransitionTime}")
	c.apply(t, clusterTemplate, "agent", wrongTemplate)
	c.wantReady(t, agent, "False Invalid")
	if now := c.field(t, agent, "{.status.revision}"); now != revision {
		t.Errorf("the revision is %q, want that of the last valid content, %s", now, revision)
	}
	message := c.field(t, agent, "{.status.conditions[0].message}")
	for _, part := range []string{"replicas that know its last valid content use that, with revision " + revision, "spec.pod.metadata.annotations", "nonsense"} {
		if !strings.Contains(message, part) {
			t.Errorf("the message lacks %q: %s", part, message)
		}
	}
	c.wantEvent(t, "default", "agent", "Warning Invalid "+message)
	c.apply(t, clusterTemplate, "agent", "one")
	c.wantReady(t, agent, "True Valid")
	c.wantEvent(t, "default", "agent", "Normal Valid Pillion uses this template, unless a file has one of this name.")
	if now := c.field(t, agent, "{.status.conditions[0].lastTransitionTime}"); now < since {
		t.Errorf("the time of the condition went from %s to %s", since, now)
	}
	c.apply(t, clusterTemplate, "other", "one")
	c.wantReady(t, "clustersidecartemplate/other", "True Valid")
	if managers := c.field(t, agent, "{.metadata.managedFields[?(@.subresource=='status')].manager}"); managers != "pillion-controller" {
		t.Errorf("the status is managed by %q", managers)
	}
}

func (c *controlled) nameTaken(t *testing.T) {
	const team = "sidecartemplate/taken"
	c.apply(t, teamTemplate, "taken", "one")
	c.wantReady(t, team, "True Valid", "-n", "team-a")
	c.apply(t, clusterTemplate, "taken", "two")
	c.wantReady(t, team, "False NameTaken", "-n", "team-a")
	if out := c.kubectl(t, "", "get", "clustersidecartemplates,sidecartemplates", "-n", "team-a", "-o", "wide"); !regexp.MustCompile(`sidecartemplate\.pillion\.dev/taken +False +NameTaken .* The ClusterSidecarTemplate taken takes precedence`).MatchString(out) {
		t.Errorf("kubectl prints no reason: %s", out)
	}
	c.wantEvent(t, "team-a", "taken", "Warning NameTaken The ClusterSidecarTemplate taken takes precedence, so no pod gets this template. Create this template again with another name.")
	c.kubectl(t, "", "delete", "clustersidecartemplate", "taken")
	c.wantReady(t, team, "True Valid", "-n", "team-a")
	c.wantEvent(t, "team-a", "taken", "Normal Valid Pillion uses this template, unless a file has one of this name.")
}

func (c *controlled) pods(t *testing.T) {
	revision := c.field(t, "clustersidecartemplate/agent", "{.status.revision}")
	ofTeam := c.field(t, "sidecartemplate/taken", "{.status.revision}", "-n", "team-a")
	for i, injected := range []map[string]string{
		{"agent": revision, "taken": ofTeam}, {"agent": revision}, {"agent": "0123456789ab"}, {},
	} {
		for _, namespace := range []string{"team-a", "default"} {
			pod := newPod(fmt.Sprintf("web-%d", i))
			pod.Annotations = map[string]string{}
			for name, revision := range injected {
				pod.Annotations[name+".pillion.dev/injected"] = revision
			}
			eventually(t, "pods can be created", func(ctx context.Context) error {
				_, err := c.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
				return err
			})
		}
	}
	want := func(template, counts string, flags ...string) {
		t.Helper()
		eventually(t, template+" has its pods", func(context.Context) error {
			if got := c.field(t, template, "{.status.pods.current} {.status.pods.outdated}", flags...); got != counts { //nolint:contextcheck // kubectl has the test's context
				return fmt.Errorf("current and outdated are %s, want %s", got, counts)
			}
			return nil
		})
	}
	want("clustersidecartemplate/agent", "4 2")
	want("sidecartemplate/taken", "1 0", "-n", "team-a") // that of its own namespace
	if err := c.Client.CoreV1().Pods("default").Delete(testContext(t), "web-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	finished, err := c.Client.CoreV1().Pods("default").Get(testContext(t), "web-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	finished.Status.Phase = corev1.PodSucceeded
	if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(testContext(t), finished, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want("clustersidecartemplate/agent", "3 1")
	c.apply(t, teamTemplate, "taken", "changed")
	want("sidecartemplate/taken", "0 1", "-n", "team-a")
}

// missing checks that pods that should have a template and lack it are counted, even if their namespace opts in later, and that others
// are not.
func (c *controlled) missing(t *testing.T) {
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The flags of the Deployment and its ConfigMap decide which templates Pillion uses.
	c.kubectl(t, "", "apply", "--server-side", "-n", "pillion-system", "-k", filepath.Join(root, "templates", "library"))
	c.kubectl(t, "", "apply", "-f", filepath.Join(root, "manifests", "base", "40-deployment.yaml"))
	c.kubectl(t, "", "create", "namespace", "late")
	for i, labels := range []map[string]string{{}, {}, {}, {injectLabel: "disabled"}} {
		pod := newPod(fmt.Sprintf("web-%d", i), func(p *corev1.Pod) { p.Labels = labels })
		eventually(t, "pods can be created", func(ctx context.Context) error {
			_, err := c.Client.CoreV1().Pods("late").Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	want := func(counts string) { // the pause after a count is a hundred times as long as that
		t.Helper()
		eventuallyWithin(t, 5*time.Minute, "the missing pods are counted", func(context.Context) error {
			if got := c.field(t, "clustersidecartemplate/agent", "{.status.pods.missing}"); got != counts { //nolint:contextcheck // kubectl has the test's context
				return fmt.Errorf("%q pods lack it, want %s", got, counts)
			}
			return nil
		})
	}
	want("0")
	c.kubectl(t, "", "label", "namespace", "late", injectLabel+"=enabled")
	c.kubectl(t, "", "label", "pod", "web-0", "-n", "late", "changed=true") // otherwise the label is read within five minutes
	want("3")
	c.kubectl(t, "", "delete", "pod", "web-0", "-n", "late", "--force")
	want("2")
}

func (c *controlled) start(t *testing.T, flags ...string) *cluster.Pillion {
	t.Helper()
	p, err := c.StartController(testContext(t), env.binary, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of a controller ends with\n%s", p.LogTail())
		}
	})
	return p
}

func (c *controlled) apply(t *testing.T, template, name, value string) {
	t.Helper()
	c.kubectl(t, fmt.Sprintf(template, name, value), "apply", "--server-side", "-f", "-")
}

func (c *controlled) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.RunKubectl(testContext(t), []byte(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// field reads a field of a template, as kubectl get -o jsonpath does. It starts no kubectl: tests wait for fields, and a
// process for each look takes the CPU that everything else needs.
func (c *controlled) field(t *testing.T, object, path string, flags ...string) string {
	t.Helper()
	kind, name, _ := strings.Cut(object, "/")
	at := []string{"apis/pillion.dev/v1alpha1", kind + "s", name}
	if len(flags) == 2 && flags[0] == "-n" {
		at = slices.Insert(at, 1, "namespaces", flags[1])
	}
	text, err := c.Client.Discovery().RESTClient().Get().AbsPath(at...).DoRaw(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var found any
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	expression := jsonpath.New(path).AllowMissingKeys(true)
	if err := errors.Join(expression.Parse(path), expression.Execute(&out, found)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// wantReady waits until the controller has reported a status and reason about the current generation.
func (c *controlled) wantReady(t *testing.T, object, want string, flags ...string) {
	t.Helper()
	eventually(t, object+" is "+want, func(context.Context) error {
		const path = "{.metadata.generation} {.status.conditions[0].observedGeneration} {.status.conditions[0].status} {.status.conditions[0].reason}"
		got := c.field(t, object, path, flags...) //nolint:contextcheck // kubectl has the test's context
		if generation, _, _ := strings.Cut(got, " "); got != generation+" "+generation+" "+want {
			return errors.New(got)
		}
		return nil
	})
}

// wantEvent waits for an Event with a type, a reason and a message.
func (c *controlled) wantEvent(t *testing.T, namespace, name, want string) {
	t.Helper()
	eventually(t, "the Event "+want, func(ctx context.Context) error {
		events, err := c.Client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var all []string
		for i := range events.Items {
			e := &events.Items[i]
			got := e.Type + " " + e.Reason + " " + e.Note
			if e.Regarding.Name == name && e.ReportingController == "pillion-controller" && got == want {
				return nil
			}
			all = append(all, e.Regarding.Name+": "+got)
		}
		return fmt.Errorf("there are\n%s", strings.Join(all, "\n"))
	})
}

func wantReadiness(ctx context.Context, p *cluster.Pillion, status int, part string) error {
	got, said, err := p.Readiness(ctx)
	if err == nil && (got != status || !strings.Contains(said, part)) {
		err = fmt.Errorf("%d %q, want %d %q", got, said, status, part)
	}
	return err
}
