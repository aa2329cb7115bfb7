// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRolloutHistory checks on a real API server that the controller keeps the history of templates of both kinds with the rights of
// the component, that undo goes back, and to nothing that others have planted, that its token cannot write ControllerRevisions of others, and that the garbage collector
// deletes the history with the template, also of a template of the cluster.
func TestRolloutHistory(t *testing.T) {
	t.Parallel()
	i := (&installed{Cluster: newCluster(t), components: []string{"rollout"}}).install(t, "self-signed")
	i.waitForInjection(t)
	c := &controlled{i.Cluster}
	p := c.start(t, "--history=3")
	for _, of := range []struct{ kind, namespace, history, prefix string }{
		{"ClusterSidecarTemplate", "", pillionNamespace, ""},
		{"SidecarTemplate", i.namespace, i.namespace, i.namespace + "/"},
	} {
		t.Run(of.kind, func(t *testing.T) {
			name := "agent" + map[bool]string{true: "-of-team"}[of.namespace != ""]
			template := func(image string) string {
				in := ""
				if of.namespace != "" {
					in = ", namespace: " + of.namespace
				}
				return fmt.Sprintf("apiVersion: pillion.dev/v1alpha1\nkind: %s\nmetadata: {name: %s%s}\nspec:\n  rollout: {strategy: InPlace}\n"+
					"  pod: {spec: {initContainers: [{name: %[2]s, image: %[4]q, restartPolicy: Always}]}}\n", of.kind, name, in, image)
			}
			objects := func() string {
				return i.kubectl(t, "", "get", "controllerrevisions", "-n", of.history, "-l", "pillion.dev/template="+name, "-o", "jsonpath={.items[*].metadata.name}")
			}
			wantHistory := func(want string) {
				t.Helper()
				eventually(t, "the history is "+want, func(context.Context) error {
					got := i.history(t, of.prefix+name) //nolint:contextcheck // it has the test's context
					if objects := objects(); strings.TrimSpace(got) != want || len(strings.Fields(objects)) != len(strings.Fields(want)) {
						return fmt.Errorf("it is %s, in %s; %s", got, objects, p.LogTail())
					}
					return nil
				})
			}
			for n, want := range []string{"1=agent:0", "1=agent:0 2=agent:1", "1=agent:0 2=agent:1 3=agent:2", "2=agent:1 3=agent:2 4=agent:3"} {
				i.kubectl(t, template(fmt.Sprint("agent:", n)), "apply", "--server-side", "-f", "-")
				wantHistory(want)
			}
			i.undo(t, of.prefix+name)
			wantHistory("2=agent:1 4=agent:3 5=agent:2")
			i.undo(t, of.prefix+name, "--to-revision", "2")
			wantHistory("4=agent:3 5=agent:2 6=agent:1")
			// As docs say, the next server-side apply of other content needs force.
			if out, err := i.RunKubectl(testContext(t), []byte(template("agent:4")), "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(string(out)+err.Error(), "pillion-rollout") {
				t.Errorf("an apply after undo: %v, %s", err, out)
			}
			i.kubectl(t, template("agent:4"), "apply", "--server-side", "--force-conflicts", "-f", "-")
			wantHistory("5=agent:2 6=agent:1 7=agent:4")
			i.kubectl(t, template("agent:5"), "apply", "--server-side", "-f", "-")
			wantHistory("6=agent:1 7=agent:4 8=agent:5")
			i.plantRevisions(t, of.kind, of.namespace, of.history, name)
			i.kubectl(t, "", "delete", strings.ToLower(of.kind), name, "--namespace="+of.namespace)
			// It finds new kinds of owners every 30 seconds.
			eventuallyWithin(t, rollingLimit, "the garbage collector deletes the history", func(context.Context) error {
				if got := objects(); got != "" {
					return fmt.Errorf("it is %s", got)
				}
				return nil
			})
		})
	}
	t.Run("token", i.revisionsOfOthers)
}

// history returns the numbers of the revisions of a template, each with its image, as pillion rollout history prints them.
func (i *installed) history(t *testing.T, template string) string {
	t.Helper()
	out, err := exec.CommandContext(testContext(t), env.binary, "rollout", "history", template, "-o", "json", "--kubeconfig", i.Kubeconfig).Output()
	if err != nil {
		t.Fatalf("history: %v: %s", err, out)
	}
	var of struct {
		Revisions []struct {
			Revision int
			Images   []string
		}
	}
	if err := json.Unmarshal(out, &of); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, r := range of.Revisions {
		fmt.Fprintf(&text, "%d=%s ", r.Revision, strings.Join(r.Images, ","))
	}
	return text.String()
}

// plantRevisions is a user who may create and delete ControllerRevisions, and makes some with a content of their own. Nothing applies it:
// neither a new revision that looks like one of Pillion's, nor one in the place of Pillion's own. The template has agent:5, and before
// that agent:4.
func (i *installed) plantRevisions(t *testing.T, kind, namespace, history, template string) {
	t.Helper()
	name, of := template, template
	if namespace != "" {
		of = namespace + "/" + template
	}
	read := func(path string) string {
		return i.kubectl(t, "", "get", strings.ToLower(kind), template, "--namespace="+namespace, "-o", "jsonpath="+path)
	}
	plant := func(object string) {
		t.Helper()
		i.kubectl(t, fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 99, "metadata": {"name": %q, "namespace": %q,
			"labels": {"pillion.dev/template": %q, "pillion.dev/template-kind": %q}, "annotations": {"pillion.dev/revision": "0123456789ab", "pillion.dev/changed": "2037-01-01T00:00:00Z"},
			"ownerReferences": [{"apiVersion": "pillion.dev/v1alpha1", "kind": %[4]q, "name": %[3]q, "uid": %[5]q, "controller": true}]},
			"data": {"spec": {"default": true, "pod": {"spec": {"initContainers": [{"name": %[3]q, "image": "evil:1", "restartPolicy": "Always"}]}}}}}`, object, history, name, kind, read("{.metadata.uid}")), "create", "-f", "-")
	}
	plant("planted")
	if got := i.history(t, of); strings.Contains(got, "evil") || strings.Contains(got, "99") {
		t.Errorf("the history has a planted revision: %s", got)
	}
	i.undo(t, of)
	if image := read("{.spec.pod.spec.initContainers[0].image}"); image != "agent:4" {
		t.Errorf("beside a planted revision, the image is %s after undo, want agent:4", image)
	}
	before := i.history(t, of)
	eventually(t, "the history has agent:4 again", func(context.Context) error {
		if before = i.history(t, of); !strings.HasSuffix(before, "=agent:4 ") { //nolint:contextcheck // it has the test's context
			return errors.New(before)
		}
		return nil
	})
	own := read("{.status.history[1].object}")
	i.kubectl(t, "", "delete", "controllerrevision", own, "-n", history)
	plant(own)
	out, err := exec.CommandContext(testContext(t), env.binary, "rollout", "undo", "--yes", "--kubeconfig", i.Kubeconfig, of).CombinedOutput()
	if text := strings.Join(strings.Fields(string(out)), " "); err == nil || !strings.Contains(text, "because somebody has written another one into the ControllerRevision "+own) {
		t.Errorf("with another content in a revision of Pillion's, undo: %v: %s", err, out)
	}
	if image := read("{.spec.pod.spec.initContainers[0].image}"); image != "agent:4" {
		t.Errorf("the image is %s", image)
	}
}

// undo runs pillion rollout undo.
func (i *installed) undo(t *testing.T, arguments ...string) {
	t.Helper()
	out, err := exec.CommandContext(testContext(t), env.binary, append([]string{"rollout", "undo", "--yes", "--kubeconfig", i.Kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "again.") {
		t.Fatalf("undo: %v: %s", err, out)
	}
}

// revisionsOfOthers checks that the policy of the component denies the controller's token to write a ControllerRevision of a DaemonSet.
func (i *installed) revisionsOfOthers(t *testing.T) {
	i.kubectl(t, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: proxy, namespace: "+i.namespace+"}\nspec:\n  selector: {matchLabels: {app: proxy}}\n"+
		"  template: {metadata: {labels: {app: proxy}}, spec: {containers: [{name: app, image: app}]}}\n", "apply", "-f", "-")
	name := ""
	eventually(t, "the DaemonSet has a revision", func(context.Context) error {
		name = i.kubectl(t, "", "get", "controllerrevisions", "-n", i.namespace, "-l", "app=proxy", "-o", "jsonpath={.items[*].metadata.name}") //nolint:contextcheck // kubectl has the test's context
		if name == "" {
			return errors.New("it has none")
		}
		return nil
	})
	of := victim{"apps", "controllerrevisions", name}
	thief := of.in(controllerClient(t, i.Cluster, pillionNamespace, "pillion-controller"), i.namespace)
	if _, err := thief.Patch(testContext(t), name, types.MergePatchType, []byte(`{"revision": 9}`), dryPatch()); !apierrors.IsForbidden(err) {
		t.Errorf("a patch: %v", err)
	}
	wantOnlyRollouts(t, "delete", thief.Delete(testContext(t), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
}
