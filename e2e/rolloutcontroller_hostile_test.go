// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// hostile checks that nothing that users of namespaces may write makes the controller change more than its own fields, or stops the
// rollout of others.
func (r *selfRolling) hostile(t *testing.T, ns string) {
	const tenant = "tenant" // without the label
	r.settle(t, ns, "strategy: InPlace", "agent:1")
	r.allow(t, ns)
	r.deployment(t, ns, 2)
	before := uids(r.ready(t, ns, 2))
	// Containers of apps with the template's name. Their pods are created without Pillion, and then claim to be injected.
	create := func(namespace, pod, container string) {
		r.kubectl(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: "+pod+", namespace: "+namespace+", labels: {pillion.dev/inject: disabled}}\n"+
			"spec: {initContainers: [{name: setup, image: \"setup:1\"}, {name: agent, image: \"app:1\", restartPolicy: Always}], containers: [{name: "+container+", image: \"app:1\"}]}", "create", "-f", "-")
		r.kubectl(t, "", "label", "pod", pod, "-n", namespace, "pillion.dev/inject-")
		r.kubectl(t, "", "annotate", "pod", pod, "-n", namespace, "agent.pillion.dev/injected=0123456789ab", "gone.pillion.dev/injected=0123456789ab", "hijack.pillion.dev/injected=0123456789ab")
	}
	create(ns, "forged", "app")
	// Templates that replace one that does not exist, and that bring the container of an app.
	r.kubectl(t, "", "create", "namespace", tenant)
	r.kubectl(t, "", "label", "namespace", tenant, injectLabel+"=enabled")
	for _, namespace := range []string{ns, tenant} {
		apply := func(name, spec string) {
			r.kubectl(t, "apiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: "+name+", namespace: "+namespace+"}\nspec: "+spec, "apply", "-f", "-")
		}
		apply("base", `{pod: {spec: {initContainers: [{name: agent, image: "evil:1", restartPolicy: Always}]}}}`)
		apply("steal", `{replaces: base, default: true, rollout: {strategy: InPlaceOrRestart, bake: 0s}, pod: {spec: {initContainers: [{name: agent, image: "evil:1", restartPolicy: Always}]}}}`)
		r.kubectl(t, "", "delete", "sidecartemplate", "base", "-n", namespace)
		apply("hijack", `{rollout: {strategy: InPlace, bake: 0s}, pod: {spec: {containers: [{name: app, image: "evil:1"}]}}}`) // last, so that its plan is about all of them
	}
	create(tenant, "forged", "app")
	r.settle(t, ns, "strategy: InPlace", "agent:2")
	eventuallyWithin(t, rollingLimit, "the pods of the Deployment have changed", func(context.Context) error {
		if n := r.with(t, ns, "agent:2"); n != 2 { //nolint:contextcheck // it has the test's context
			return fmt.Errorf("%d of 2; %s", n, r.field(t, "clustersidecartemplate/agent", "{.status}")) //nolint:contextcheck // the same
		}
		return nil
	})
	message := r.wantCondition(t, "Progressing", "False Incomplete")
	if !strings.HasPrefix(message, "1 pod of 1 workload is not updated, for example Pod/forged in the namespace "+ns) {
		t.Errorf("the message is %s", message)
	}
	r.wantReady(t, "sidecartemplate/steal", "False CannotReplace", "-n", ns)
	eventuallyWithin(t, rollingLimit, "the template of the namespace is processed, and the forged pod is left", func(context.Context) error {
		const path = `{range .status.conditions[?(@.type=="Progressing")]}{.status} {.reason} {.message}{end}`
		const want = "False Incomplete 1 pod of 1 workload is not updated, for example Pod/forged in the namespace "
		if got := r.field(t, "sidecartemplate/hijack", path, "-n", ns); !strings.HasPrefix(got, want+ns+": ") { //nolint:contextcheck // it has the test's context
			return errors.New(got)
		}
		return nil
	})
	for _, namespace := range []string{ns, tenant} {
		for _, p := range r.rolling.pods(t, namespace) {
			if p.Name == "forged" && (p.Spec.InitContainers[1].Image != "app:1" || p.Spec.Containers[0].Image != "app:1" || p.Annotations["agent.pillion.dev/injected"] != "0123456789ab") {
				t.Errorf("the pod in the namespace %s has changed: %v, %+v", namespace, p.Annotations, p.Spec)
			}
			if p.Name != "forged" && (p.Spec.Containers[0].Image != "app:1" || before[p.Name] != p.UID) {
				t.Errorf("pod %s has the app %s", p.Name, p.Spec.Containers[0].Image)
			}
		}
	}
	for _, namespace := range []string{ns, tenant} {
		r.kubectl(t, "", "delete", "sidecartemplates", "--all", "-n", namespace)
	}
}
