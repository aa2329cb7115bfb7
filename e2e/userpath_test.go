// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const adviseConfiguration = "pillion-advise"

// webYAML has a misspelled parameter: it is fluent-bit.pillion.dev/host.
const webYAML = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations:
        pillion.dev/templates: fluent-bit
        fluent-bit.pillion.dev/hots: logs.example.com
    spec:
      containers:
      - name: web
        image: registry.example/web:1.4
`

// user is a shell with kubectl, pillion and web.yaml.
type user struct {
	*installed
	dir        string
	environ    []string // in addition to the usual
	transcript strings.Builder
	restarted  time.Time // when the last restart ended
}

func (i *installed) newUser(t *testing.T) *user {
	t.Helper()
	u := &user{installed: i, dir: t.TempDir()}
	err := errors.Join(
		os.WriteFile(filepath.Join(u.dir, "web.yaml"), []byte(webYAML), 0o600),
		os.Symlink(env.binary, filepath.Join(u.dir, "pillion")))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// run runs a line in the shell, and returns its whole output. A restart writes the time in seconds into the workload, so kubectl rejects
// a second one in the same second, which tests are fast enough for.
func (u *user) run(ctx context.Context, line string) (shown string, code int, err error) {
	if strings.Contains(line, "rollout restart") {
		<-time.After(time.Until(u.restarted.Truncate(time.Second).Add(time.Second)))
		defer func() { u.restarted = time.Now() }()
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = u.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.Kubeconfig, "PATH="+filepath.Join(u.dir, "programs")+":"+u.dir+":"+filepath.Dir(u.Kubectl)+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, u.environ...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), exit.ExitCode(), nil
	}
	return string(out), 0, err
}

// types is run with a line of the transcript.
func (u *user) types(t *testing.T, line string, wantCode int) {
	t.Helper()
	shown, code, err := u.run(testContext(t), line)
	if err != nil || code != wantCode {
		t.Fatalf("%s: exit code %d, want %d: %v\n%s", line, code, wantCode, err, shown)
	}
	fmt.Fprintf(&u.transcript, "$ %s\n%s", line, shown)
	if code != 0 {
		fmt.Fprintf(&u.transcript, "(exit code %d)\n", code)
	}
}

// warned fails unless who applies web.yaml now is warned.
func (u *user) warned(ctx context.Context) error {
	shown, code, err := u.run(ctx, "kubectl apply --dry-run=server -f web.yaml")
	if err == nil && (code != 0 || !strings.Contains(shown, `did you mean "host"?`)) {
		err = fmt.Errorf("exit code %d: %s", code, shown)
	}
	return err
}

// nodes makes pods of the namespace ready, as nodes would.
func (i *installed) nodes(t *testing.T, namespace string) {
	t.Helper()
	pods := i.Client.CoreV1().Pods(namespace)
	watcher, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	const ready = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				_, _ = pods.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(ready), metav1.PatchOptions{}, "status") // otherwise the rollout never ends
			}
		}
	}()
}

// rolledOut returns when the Deployment's pods are the new ones alone.
func (u *user) rolledOut(t *testing.T) {
	t.Helper()
	eventually(t, "the Deployment is rolled out", func(ctx context.Context) error {
		shown, code, err := u.run(ctx, "kubectl rollout status deploy/web -n shop --watch=false")
		if err == nil && (code != 0 || !strings.Contains(shown, "successfully rolled out")) {
			err = errors.New(shown)
		}
		return err
	})
}

// TestUserPath follows a user from the mistake to the fixed Deployment at the prompt, and compares all output.
func TestUserPath(t *testing.T) {
	t.Parallel()
	i := (&installed{Cluster: newCluster(t)}).install(t, "self-signed")
	i.nodes(t, i.namespace)
	u := i.newUser(t)
	i.waitForInjection(t)
	eventually(t, "advice comes", u.warned)
	if _, err := u.RunKubectl(testContext(t), nil, "delete", "pods", "--all", "-n", i.namespace); err != nil {
		t.Fatal(err)
	}

	u.types(t, "grep pillion.dev web.yaml", 0)
	u.types(t, "kubectl apply -f web.yaml", 0)
	u.rolledOut(t)
	u.types(t, "pillion explain deploy/web -n shop", 0)
	u.types(t, "pillion status shop", 1)
	u.types(t, "sed -i s/hots/host/ web.yaml", 0)
	u.types(t, "kubectl apply -f web.yaml", 0)
	u.rolledOut(t)
	u.types(t, "kubectl rollout status deploy/web -n shop", 0)
	eventually(t, "the old pod is gone", func(ctx context.Context) error {
		shown, _, err := u.run(ctx, "pillion status shop -o name")
		if err == nil && shown != "" {
			err = errors.New(shown)
		}
		return err
	})
	u.types(t, "pillion status shop", 0)

	got := u.transcript.String()
	for pattern, mask := range map[string]string{`\b[0-9a-f]{12}\b`: "<revision>", `\bweb-[0-9a-z]+-[0-9a-z]{5}\b`: "<pod>"} {
		got = regexp.MustCompile(pattern).ReplaceAllString(got, mask)
	}
	wantGolden(t, filepath.Join("testdata", "userpath.txt"), got)
	if n := strings.Count(got, "\n$ ") + 1; n >= 10 {
		t.Errorf("it takes %d commands", n)
	}
	for line := range strings.Lines(got) {
		if len([]rune(line)) > 101 && !strings.HasPrefix(line, "Warning: ") {
			t.Errorf("more than 100 columns: %s", line)
		}
	}
}

// TestSelfSignedAdvise checks that the webhook for workloads is always trusted, as the others are.
func TestSelfSignedAdvise(t *testing.T) {
	t.Parallel()
	i := (&installed{Cluster: newCluster(t)}).install(t, "self-signed")
	u := i.newUser(t)
	eventually(t, "advice comes", u.warned)
	i.waitForCABundles(t)
	if report := i.certs(t); report.Source != "self-managed" || len(report.Trust) != len(pillionRules()) || len(report.Problems) > 0 {
		t.Errorf("all is well, and the report is %+v", report)
	}

	before := certificatesIn(i.material(t)["ca.crt"])[0]
	i.setMaterial(t, map[string][]byte{"ca.key": nil})
	eventually(t, "another CA's certificate is served", func(ctx context.Context) error {
		if err := u.warned(ctx); err != nil {
			t.Error(err)
		}
		now, err := i.readMaterial(ctx)
		if err != nil {
			return err
		}
		ca := certificatesIn(now["ca.crt"])[0]
		signed := func(r *cluster.Replica) bool {
			leaf, err := served(ctx, r)
			return err == nil && leaf.CheckSignatureFrom(ca) == nil
		}
		if ca.Equal(before) || slices.ContainsFunc(i.replicas, func(r *cluster.Replica) bool { return !signed(r) }) {
			return errors.New("not yet")
		}
		return nil
	})
	if err := u.warned(testContext(t)); err != nil {
		t.Error(err)
	}

	configurations := i.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	t.Run("kept", func(t *testing.T) {
		needsKubernetes(t, 36, servesMutating)
		i.keepBundles(t)
		eventually(t, "its caBundle cannot be emptied", func(ctx context.Context) error {
			got, err := configurations.Patch(ctx, adviseConfiguration, types.JSONPatchType,
				[]byte(`[{"op":"remove","path":"/webhooks/1/clientConfig/caBundle"}]`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && len(got.Webhooks[1].ClientConfig.CABundle) == 0 {
				err = errors.New("it is empty")
			}
			return err
		})
	})

	// It may go, which is no problem, and come back.
	if err := configurations.Delete(testContext(t), adviseConfiguration, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if report := i.certs(t); len(report.Trust) != len(pillionRules())-len(env.manifests.Advising.Webhooks) || len(report.Problems) > 0 {
		t.Errorf("without it, the report is %+v", report)
	}
	i.apply(t, "self-signed")
	i.waitForCABundles(t)
	eventually(t, "advice comes again", u.warned)
}
