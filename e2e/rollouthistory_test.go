// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRolloutHistory checks on a real API server that the controller keeps the history of templates of both kinds with the rights of
// the component, that undo goes back, that its token cannot write ControllerRevisions of others, and that the garbage collector
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
			history := func() string {
				return i.kubectl(t, "", "get", "controllerrevisions", "-n", of.history, "-l", "pillion.dev/template="+name, "--sort-by=.revision",
					"-o", `jsonpath={range .items[*]}{.revision}={.data.spec.pod.spec.initContainers[0].image} {end}`)
			}
			wantHistory := func(want string) {
				t.Helper()
				eventually(t, "the history is "+want, func(context.Context) error {
					if got := history(); strings.TrimSpace(got) != want {
						return fmt.Errorf("it is %s; %s", got, p.LogTail())
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
			i.kubectl(t, "", "delete", strings.ToLower(of.kind), name, "--namespace="+of.namespace)
			// It finds new kinds of owners every 30 seconds.
			eventuallyWithin(t, rollingLimit, "the garbage collector deletes the history", func(context.Context) error {
				if got := history(); got != "" {
					return fmt.Errorf("it is %s", got)
				}
				return nil
			})
		})
	}
	t.Run("token", i.revisionsOfOthers)
}

// undo runs pillion rollout undo.
func (i *installed) undo(t *testing.T, arguments ...string) {
	t.Helper()
	out, err := exec.CommandContext(testContext(t), env.binary, append([]string{"rollout", "undo", "--yes", "--kubeconfig", i.Kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "again.") {
		t.Fatalf("undo: %v: %s", err, out)
	}
}

// revisionsOfOthers: the token of the controller can write no ControllerRevision of a DaemonSet, by the policy of the component.
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
	for _, patch := range []string{`{"revision": 9}`, `{"metadata": {"labels": {"app": "x"}}}`, `{"metadata": {"ownerReferences": null}}`} {
		_, err := thief.Patch(testContext(t), name, types.MergePatchType, []byte(patch), dryPatch())
		wantOnlyRollouts(t, patch, err)
	}
	wantOnlyRollouts(t, "delete", thief.Delete(testContext(t), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
}
