// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// The memory of the shipped containers, and what more objects may add to that of a process whose tenants use all that the
// limits allow. The quick size has fewer objects, so only the second limit can find that their memory adds up.
const (
	containerMemory = 256 << 20
	moreMemory      = 48 << 20
	largeText       = 122 << 10
)

// used is the number of large templates of namespaces with one each that are within the limits.
const used = 12

// crowd is a cluster in which tenants have more templates than Pillion uses.
type crowd struct {
	*authors
	controller *cluster.Pillion
	n          int
}

// TestTenantMemory shows that the memory of both processes does not grow with the number and the size of what a tenant
// creates: when they start, and while they run. Meanwhile, the pods of another namespace are injected.
func TestTenantMemory(t *testing.T) {
	parallelUnlessFull(t)
	c := &crowd{authors: &authors{installed: &installed{Cluster: newCluster(t)}}, n: 400}
	if fullSize() {
		c.n = 3000
	}
	var err error
	if c.objects, err = dynamic.NewForConfig(c.Config); err != nil {
		t.Fatal(err)
	}
	c.installed.apply(t, "self-signed")
	c.addNamespace(t, "noisy")
	c.addNamespace(t, "later")
	if err := c.create(t.Context(), "noisy", 5, large); err != nil { // they are the few objects
		t.Fatal(err)
	}
	c.install(t, "self-signed", "--memory-limit=256Mi")
	c.control(t)
	c.apply(t, annotates("shared", "1"), annotates("shop/own", "1"))
	c.want(t, "shop", "own=1", "shared=1")
	c.unchecked(t, true)
	if err := errors.Join(c.spread(t.Context(), 0, used), c.change(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.injects(t)
	few := c.peaks(t)

	t.Run("running", func(t *testing.T) { c.run(t, few) })
	t.Run("start", func(t *testing.T) { c.start(t, few) })
	t.Run("reasons", c.reasons)
	t.Run("namespace", c.deniesInLarge)
	c.unchecked(t, false)
	t.Run("apply", c.rejects)
	t.Run("removed", c.removed)
}

// large is a template of 122 KiB.
func large(o *unstructured.Unstructured) {
	annotations := map[string]any{}
	for i := range largeText / 1024 {
		annotations[fmt.Sprintf("authors.example.com/a%d", i)] = strings.Repeat("x", 980)
	}
	o.Object["spec"] = map[string]any{"default": true, "pod": map[string]any{"metadata": map[string]any{"annotations": annotations}}}
}

// described is a template of 122 KiB that has as much again in its annotations, and more in its labels and in the fields that
// its managers own.
func described(o *unstructured.Unstructured) {
	large(o)
	annotations, labels := map[string]string{}, map[string]string{}
	for i := range 100 {
		annotations[fmt.Sprintf("authors.example.com/a%d", i)] = strings.Repeat("x", 2000)
	}
	for i := range 1500 {
		labels[fmt.Sprintf("%s.example.com/label-%05d", strings.Repeat("l", 60), i)] = strings.Repeat("x", 63)
	}
	o.SetAnnotations(annotations)
	o.SetLabels(labels)
	o.SetName(strings.Replace(o.GetName(), "t", "described-", 1))
}

// spread creates namespaces with a large template each, and with large annotations of their own.
func (c *crowd) spread(ctx context.Context, from, to int) error {
	for i := from; i < to; i++ {
		name := fmt.Sprint("spread-", i)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{injectLabel: "enabled"}, Annotations: map[string]string{"authors.example.com/a": strings.Repeat("x", 250<<10)}}}
		if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := c.create(ctx, name, 1, large); err != nil {
			return err
		}
	}
	return nil
}

// change changes the templates that are used again and again.
func (c *crowd) change(ctx context.Context) error {
	for i := range 10 * used {
		of := c.objects.Resource(templateKinds[1]).Namespace(fmt.Sprint("spread-", i%used))
		patch := fmt.Appendf(nil, `{"spec":{"pod":{"metadata":{"annotations":{"authors.example.com/a0":"%d"}}}}}`, i)
		if _, err := of.Patch(ctx, "t00000", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// addNamespace creates a namespace whose pods are injected.
func (c *crowd) addNamespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{injectLabel: "enabled"}}}
	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitForPods(testContext(t), name); err != nil {
		t.Fatal(err)
	}
}

// create creates n templates.
func (c *crowd) create(ctx context.Context, namespace string, n int, edit func(*unstructured.Unstructured)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "SidecarTemplate"}}
			o.SetName(fmt.Sprintf("t%05d", i))
			edit(o)
			_, err := c.objects.Resource(templateKinds[1]).Namespace(namespace).Create(ctx, o, metav1.CreateOptions{FieldValidation: "Ignore"})
			return err
		})
	}
	return group.Wait()
}

// control starts the controller.
func (c *crowd) control(t *testing.T) {
	t.Helper()
	var err error
	if c.controller, err = c.StartController(t.Context(), env.binary, "--memory-limit=256Mi"); err != nil {
		t.Fatal(err)
	}
	eventuallyWithin(t, c.patience(), "the controller leads and is ready", func(ctx context.Context) error {
		if len(c.controller.Logged("this replica leads")) == 0 {
			return errors.New("it does not lead")
		}
		return wantReadiness(ctx, c.controller, http.StatusOK, "ok\n")
	})
}

// patience is the time for something that takes longer with more objects.
func (c *crowd) patience() time.Duration { return waitLimit + time.Duration(c.n)*100*time.Millisecond }

// unchecked lets templates slip in that no replica has checked, or no longer.
func (c *crowd) unchecked(t *testing.T, slips bool) {
	t.Helper()
	port := 443
	if slips {
		port = 444
	}
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/webhooks/3/clientConfig/service/port","value":%d}]`, port)
	if _, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(testContext(t), pillionConfiguration, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("templates are checked: %t", !slips), func(ctx context.Context) error {
		_, err := c.try(ctx, t, "apply --dry-run=server -f -", broken("probe"))
		if (err == nil) != slips {
			return fmt.Errorf("a template with a mistake is accepted: %t", err == nil)
		}
		return nil
	})
}

// peaks returns the most memory that each process has used.
func (c *crowd) peaks(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for what, p := range map[string]*cluster.Pillion{"serve": c.replicas[0].Pillion, "controller": c.controller} {
		peak, err := p.PeakMemory()
		if err != nil {
			t.Fatalf("%s has ended: %v\n%s", what, err, p.LogTail())
		}
		all[what] = peak
	}
	return all
}

// within compares the peaks with those of few objects.
func (c *crowd) within(t *testing.T, few map[string]int64) {
	t.Helper()
	for what, peak := range c.peaks(t) {
		t.Logf("%s: %d MiB at most, %d MiB with few objects", what, peak>>20, few[what]>>20)
		if peak > containerMemory || peak > few[what]+moreMemory {
			t.Errorf("%s has used %d MiB: with few objects, it was %d MiB", what, peak>>20, few[what]>>20)
		}
	}
}

// injects checks that pods of another namespace are injected.
func (c *crowd) injects(t *testing.T) {
	t.Helper()
	c.want(t, "shop", "own=1", "shared=1")
}

// run creates many templates while Pillion runs.
func (c *crowd) run(t *testing.T, few map[string]int64) {
	done := make(chan error, 1)
	go func() {
		done <- errors.Join(
			c.create(t.Context(), "later", c.n, large),
			c.create(t.Context(), "noisy", c.n/10, described),
			c.spread(t.Context(), used, used+c.n/10),
			c.change(t.Context()),
		)
	}()
	for running := true; running; {
		c.injects(t)
		select {
		case err := <-done:
			if running = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	c.injects(t)
	c.isBlamed(t, "later")
	c.isBlamed(t, "noisy")
	c.within(t, few)
}

// start starts all processes again, with many templates.
func (c *crowd) start(t *testing.T, few map[string]int64) {
	for i, r := range c.replicas {
		next, err := r.Replace(t.Context(), 100+i)
		if err != nil {
			t.Fatal(err)
		}
		c.replicas[i] = next
	}
	if err := c.controller.Stop(); err != nil {
		t.Errorf("pillion controller after SIGTERM: %v\n%s", err, c.controller.LogTail())
	}
	c.control(t)
	c.injects(t)
	c.isBlamed(t, "later")
	c.within(t, few)
}

// isBlamed waits until the youngest template of a namespace is reported as one too many.
func (c *crowd) isBlamed(t *testing.T, namespace string) {
	t.Helper()
	eventuallyWithin(t, c.patience(), "all templates that are too many have the reason", func(ctx context.Context) error {
		left := 0
		list, err := c.objects.Resource(templateKinds[1]).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if reason, _ := ready(&list.Items[i]); reason != "TooMany" {
				left++
			}
		}
		if left > 1 {
			return fmt.Errorf("%d of %d have not", left, len(list.Items))
		}
		return nil
	})
}

// ready returns the reason and the message of the condition Ready.
func ready(o *unstructured.Unstructured) (reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if of, _ := c.(map[string]any); of["type"] == "Ready" {
			reason, _ = of["reason"].(string)
			message, _ = of["message"].(string)
		}
	}
	return reason, message
}

// reasons checks what the templates say.
func (c *crowd) reasons(t *testing.T) {
	list, err := c.objects.Resource(templateKinds[1]).Namespace("later").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	valid := 0
	for i := range list.Items {
		switch reason, message := ready(&list.Items[i]); {
		case reason == "Valid":
			valid++
		case reason != "TooMany" || !strings.Contains(message, "128 KiB"):
			t.Fatalf("%s: %s: %s", list.Items[i].GetName(), reason, message)
		}
	}
	if valid != 1 {
		t.Errorf("%d are used, want 1", valid)
	}
	for i, want := range map[int]string{0: "template", used - 1: "template", used + 5: "48 MiB"} { // new ones never displace older ones
		eventually(t, "a template has a reason", func(ctx context.Context) error {
			o, err := c.objects.Resource(templateKinds[1]).Namespace(fmt.Sprint("spread-", i)).Get(ctx, "t00000", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if reason, message := ready(o); (reason == "Valid") != (i < used) || !strings.Contains(message, want) {
				return fmt.Errorf("the template of spread-%d: %s: %s", i, reason, message)
			}
			return nil
		})
	}
}

// deniesInLarge checks that a pod in a namespace with too many annotations is denied with the limit, and that it is not when
// they are gone.
func (c *crowd) deniesInLarge(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "w"}}}}
	create := func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Pods("spread-0").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, "a pod is denied", func(ctx context.Context) error {
		if err := create(ctx); err == nil || !strings.Contains(err.Error(), "more than 32 KiB, which is the limit") {
			return fmt.Errorf("it is admitted: %t, %w", err == nil, err)
		}
		return nil
	})
	patch := []byte(`{"metadata":{"annotations":{"authors.example.com/a":null}}}`)
	if _, err := c.Client.CoreV1().Namespaces().Patch(t.Context(), "spread-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod is admitted", create)
}

// rejects checks that one more template is rejected, with the limit.
func (c *crowd) rejects(t *testing.T) {
	out, err := c.try(testContext(t), t, "apply -f -", annotates("later/more", "1"))
	if err == nil || !strings.Contains(err.Error(), "128 KiB") {
		t.Errorf("one more template: %s, %v", out, err)
	}
	c.apply(t, annotates("shop/more", "1"))
	c.want(t, "shop", "more=1", "own=1", "shared=1")
	if _, err := c.try(testContext(t), t, "delete sct -n shop more", ""); err != nil {
		t.Error(err)
	}
}

// removed checks that a template is used when the others are gone.
func (c *crowd) removed(t *testing.T) {
	eventuallyWithin(t, c.patience(), "all are deleted", func(ctx context.Context) error { // of many, the API server deletes some before it stops waiting
		return c.objects.Resource(templateKinds[1]).Namespace("later").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	eventuallyWithin(t, c.patience(), "a new template is accepted", func(ctx context.Context) error {
		_, err := c.try(ctx, t, "apply -f -", annotates("later/fresh", "1"))
		return err
	})
	c.want(t, "later", "fresh=1", "shared=1")
}
