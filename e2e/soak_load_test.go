// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

const (
	// soakEvery is between two creates: they come when they come, however long those before them take.
	soakEvery = 20 * time.Millisecond
	// hugeEvery is between two pods of nearly the 3 MiB that an API server takes.
	hugeEvery = 3 * time.Second
	hugeSize  = 2800 << 10
	// One pod of so many is of the namespace that has nothing to do with Pillion, and of the one with another
	// injector too. Neither has a divisor in common with realEvery, so that pods of all three are stored.
	plainEvery, meshEvery = 6, 7

	plain, mesh = "plain", "mesh"
	// meshInjector adds a container to the pods of mesh, after Pillion: then either needs its second round.
	meshInjector = "z-mesh"
)

// outcome is what became of one create.
type outcome string

const (
	outcomeInjected outcome = "injected"
	outcomeBoth     outcome = "injected, by another webhook too"
	outcomeDenied   outcome = "denied by Pillion's webhook, with a reason"
	outcomeAway     outcome = "not sent, because there was no API server"
	outcomePlain    outcome = "plain, untouched"
)

// soakLoad creates pods at a rate and records the outcome of each.
type soakLoad struct {
	*installed
	sources [2]*soakSource

	cancel   context.CancelFunc
	finished sync.WaitGroup
	created  atomic.Int64
	audits   atomic.Int64 // reads the audit log

	mu       sync.Mutex
	outcomes map[outcome]int
	denials  []failure // and creates because there is no an API server
	wrong    []failure // what must never be
}

// startSoak makes the other namespaces, and starts when pods are injected by all.
func (i *installed) startSoak(t *testing.T, sources [2]*soakSource) *soakLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &soakLoad{installed: i, sources: sources, cancel: cancel, outcomes: map[outcome]int{}}
	l.prepare(t)
	l.every(ctx, soakEvery, func(n int64) {
		namespace := l.namespace
		switch {
		case n%plainEvery == 0:
			namespace = plain
		case n%meshEvery == 0:
			namespace = mesh
		}
		l.create(ctx, n, namespace, soakPod())
	})
	l.every(ctx, hugeEvery, func(int64) { l.create(ctx, 1, l.namespace, soakPod(huge)) })
	t.Cleanup(l.stop)
	return l
}

func (l *soakLoad) prepare(t *testing.T) {
	t.Helper()
	injectors, err := testwebhook.NewServer(l.Authority)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(injectors.Close)
	err = injectors.Install(t.Context(), l.Client, testwebhook.Webhook{
		Name:         meshInjector,
		Namespaces:   map[string]string{corev1.LabelMetadataName: mesh},
		Reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy,
		Mutate:       testwebhook.AddContainer(corev1.Container{Name: mesh, Image: "registry.example/mesh:1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for namespace, labels := range map[string]map[string]string{plain: nil, mesh: {injectLabel: "enabled"}} {
		if _, err := l.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := l.WaitForPods(testContext(t), namespace); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{l.namespace, mesh} {
		eventually(t, "a pod is injected", func(ctx context.Context) error {
			pod, err := l.Client.CoreV1().Pods(namespace).Create(ctx, soakPod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				err = l.hasGuard(pod, [2]int64{})
			}
			return err
		})
	}
}

// every calls f at a rate, each time on its own.
func (l *soakLoad) every(ctx context.Context, interval time.Duration, f func(n int64)) {
	l.finished.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for n := int64(1); ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.finished.Go(func() { f(n) })
			}
		}
	})
}

// stop waits for the last creates.
func (l *soakLoad) stop() {
	l.cancel()
	l.finished.Wait()
}

func soakPod(options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "soak-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
	}
	for _, o := range options {
		o(pod)
	}
	return pod
}

func huge(pod *corev1.Pod) {
	const value = 100 << 10
	for n := range hugeSize / value {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env,
			corev1.EnvVar{Name: fmt.Sprintf("V%d", n), Value: strings.Repeat("x", value)})
	}
}

// create is not cut off by the end of the load.
func (l *soakLoad) create(ctx context.Context, n int64, namespace string, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitLimit)
	defer cancel()
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if n%realEvery == 0 {
		options.DryRun = nil
	}
	var least [2]int64
	for n, source := range l.sources {
		least[n] = source.used.Load()
	}
	f := failure{began: time.Now()}
	created, err := l.Client.CoreV1().Pods(namespace).Create(ctx, pod, options)
	f.ended = time.Now()
	is, err := l.outcomeOf(namespace, created, least, err)
	f.err = err
	if is == "" && created != nil && l.audits.Add(1) <= 3 { // for it takes long
		f.err = fmt.Errorf("%w; the API server says %v", err, l.audited(ctx, namespace, created.Name))
	}
	l.created.Add(1)

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case is == "":
		l.wrong = append(l.wrong, f)
	case err != nil:
		l.denials = append(l.denials, f)
		fallthrough
	default:
		l.outcomes[is]++
	}
}

// audited is what the API server recorded about its calls of webhooks.
func (l *soakLoad) audited(ctx context.Context, namespace, name string) map[string]string {
	event, err := l.Audit.Wait(ctx, func(e cluster.Event) bool { return e.CreatesPod(namespace, name) })
	if err != nil {
		return map[string]string{"": err.Error()}
	}
	return event.Annotations
}

// outcomeOf returns the outcome of a create, or "" for one that must never occur. It began when all replicas had the
// least versions.
func (l *soakLoad) outcomeOf(namespace string, pod *corev1.Pod, least [2]int64, err error) (outcome, error) {
	switch {
	case err == nil && namespace == plain:
		if len(pod.Spec.InitContainers) > 0 || len(pod.Spec.Containers) != 1 {
			return "", errors.New("a pod of a namespace that did not opt in was changed")
		}
		return outcomePlain, nil
	case err == nil:
		if err := l.hasGuard(pod, least); err != nil {
			return "", fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if namespace == mesh {
			return outcomeBoth, nil
		}
		return outcomeInjected, nil
	case isAway(err):
		return outcomeAway, err
	case namespace == plain:
		return "", fmt.Errorf("a pod of a namespace that did not opt in: %w", err)
	case byPillion().MatchString(err.Error()):
		return outcomeDenied, err
	}
	return "", err
}

// byPillion matches the API server's errors for a webhook that denied a request or could not be
// called.
func byPillion() *regexp.Regexp {
	return regexp.MustCompile(`webhook "(namespace|pod)\.validate\.pillion\.dev"(: | denied the request: ).+`)
}

// isAway reports whether a request failed because the API server ends or starts. Such a request does not reach a webhook.
func isAway(err error) bool {
	status := apierrors.APIStatus(nil)
	return !errors.As(err, &status) && !errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "not yet ready to handle request") ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// hasGuard reports what the pod lacks of what the templates give it, in versions between the least and the newest.
func (l *soakLoad) hasGuard(pod *corev1.Pod, least [2]int64) error {
	var versions [2]int64
	for n, source := range l.sources {
		v, err := source.version(pod)
		if newest := source.newest.Load(); err == nil && (v < least[n] || v > newest) {
			err = fmt.Errorf("the version of the template in %s is %d, want %d to %d", source.configMap, v, least[n], newest)
		}
		if err != nil {
			return err
		}
		versions[n] = v
	}
	containers := []string{"web"}
	if pod.Namespace == mesh {
		containers = append(containers, mesh)
	}
	image := fmt.Sprint("registry.example/guard:", versions[0])
	switch {
	case len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Name != "guard" || pod.Spec.InitContainers[0].Image != image:
		return fmt.Errorf("the init containers are %v, want guard with the image %s", pod.Spec.InitContainers, image)
	case pod.Annotations["guard.pillion.dev/injected"] == "":
		return errors.New("the pod does not say which revision was injected")
	case !slices.Equal(containerNames(pod.Spec.Containers), containers) || pod.Spec.Containers[0].Image != "registry.example/web:1":
		return fmt.Errorf("the containers are %v", pod.Spec.Containers)
	}
	for _, c := range pod.Spec.Containers {
		if !slices.Contains(mountPaths(c), "/var/guard") {
			return fmt.Errorf("the container %s lacks its mount", c.Name)
		}
	}
	return nil
}

// more waits until so many more creates have come to something.
func (l *soakLoad) more(ctx context.Context, n int64) error {
	target := l.created.Load() + n
	return poll(ctx, func() error {
		if now := l.created.Load(); now < target {
			return fmt.Errorf("%d creates of %d", now, target)
		}
		return nil
	})
}
