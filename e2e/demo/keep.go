// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// lookEvery is the interval for reading the log of pillion serve.
const lookEvery = 200 * time.Millisecond

// showWhatToTry prints suggestions for KEEP=1.
func (d *demo) showWhatToTry() error {
	bin, err := d.makePath()
	if err != nil {
		return err
	}
	d.screen.heading("4. Your turn: everything stays up until you press Ctrl-C")
	d.copyable("In another terminal:",
		"export KUBECONFIG="+d.Kubeconfig+" PATH="+bin+":$PATH",
		"cd "+programs.Brief(d.root))
	d.copyable("Apply a template of your own. This one adds a sidecar to every new pod. Change the file and apply it again:",
		"kubectl apply -f e2e/demo/my-sidecar.yaml",
		"kubectl wait --for=condition=Ready cst/my-sidecar",
		"kubectl get cst")
	d.copyable("This terminal shows what changes in new pods. Existing pods stay as they are. If you delete them, their\n"+
		"Deployment creates new ones:",
		"kubectl delete pods --all --namespace "+optedIn,
		"kubectl get pods --namespace "+optedIn+" --output yaml")
	d.copyable("See why each pod has its sidecars:",
		"pillion status",
		"pillion explain deployment/checkout --namespace "+optedIn)
	d.copyable("Create a pod that asks for one more template, and one that opts in by itself:",
		"kubectl run mine --namespace "+optedIn+" --image registry.example/mine:1 \\",
		"    --annotations pillion.dev/templates=+auth-proxy",
		"kubectl run mine --namespace "+notOptedIn+" --image registry.example/mine:1 \\",
		"    --labels pillion.dev/inject=enabled")
	fmt.Fprintln(d.screen.out, "Pods stay Pending: this cluster has an API server and controllers, and no nodes to run them.\n"+
		"So a rollout never ends here. Delete the pods where `pillion status` suggests kubectl rollout restart.")
	if d.Kubectl == "" {
		fmt.Fprintln(d.screen.out, "kubectl is missing: install it (https://kubernetes.io/docs/tasks/tools/). The other commands work without it.")
	}
	return nil
}

// copyable prints commands unchanged and never clipped.
func (d *demo) copyable(about string, commands ...string) {
	fmt.Fprintf(d.screen.out, "%s\n\n  %s\n\n", about, strings.Join(commands, "\n  "))
}

// makePath creates a folder for the PATH, with pillion and kubectl.
func (d *demo) makePath() (string, error) {
	bin := d.Path("bin")
	err := errors.Join(os.Mkdir(bin, 0o755), os.Symlink(d.Path("pillion"), filepath.Join(bin, "pillion")))
	if d.Kubectl != "" {
		err = errors.Join(err, os.Symlink(d.Kubectl, filepath.Join(bin, "kubectl")))
	}
	return bin, err
}

// loaded is the message of pillion serve about new templates.
const loaded = "templates loaded"

// followTemplates shows the effect of changed templates until ctx is done.
func (d *demo) followTemplates(ctx context.Context) error {
	before, err := d.newPod(ctx)
	if err != nil {
		return err
	}
	seen := len(d.pillion.Logged(loaded))
	_ = wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		events := d.pillion.Logged(loaded)
		for _, event := range events[seen:] {
			before = d.showEvent(ctx, event, before)
		}
		seen = len(events)
		return false, nil
	}) // ends with ctx
	return nil
}

// showEvent shows the effect of changed templates, and returns the new pod.
func (d *demo) showEvent(ctx context.Context, event map[string]any, before []byte) []byte {
	d.screen.line(green, "%s  The templates are %v now.", time.Now().Format(time.TimeOnly), event["templates"])
	after, err := d.newPod(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.screen.line(red, "  %v", err)
	case bytes.Equal(before, after):
		fmt.Fprintln(d.screen.out, "  New pods of deployment/checkout are as before.")
		d.printSkipped(ctx)
	default:
		if err := d.screen.diff("a new pod of deployment/checkout, before", "and now", before, after); err != nil {
			d.screen.line(red, "  %v", err)
		}
	}
	return after
}

// printSkipped prints why new pods of the Deployment do not get some templates.
func (d *demo) printSkipped(ctx context.Context) {
	command := exec.CommandContext(ctx, d.Path("pillion"), "explain", "deployment/checkout", "--namespace", optedIn, "-o", "json")
	command.Env = append(programs.CleanEnvironment(os.Environ()), "KUBECONFIG="+d.Kubeconfig)
	out, _ := command.Output() // it exits with 1 if a pod would be denied
	var found struct {
		Reports []struct {
			Templates []struct{ Template, Code, Message string }
		}
	}
	if err := json.Unmarshal(out, &found); err != nil && ctx.Err() == nil {
		d.screen.line(red, "  pillion explain: %v", err)
	}
	for _, r := range found.Reports {
		for _, t := range r.Templates {
			if t.Code != "injected" {
				fmt.Fprintf(d.screen.out, "  %s: %s: %s\n", t.Template, t.Code, t.Message)
			}
		}
	}
}

// newPod returns a pod of the Deployment after admission, without the values that differ each
// time.
func (d *demo) newPod(ctx context.Context) ([]byte, error) {
	var manifest appsv1.Deployment
	if err := yaml.Unmarshal(deployment, &manifest); err != nil {
		return nil, err
	}
	template := manifest.Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "checkout"
	pod, err := d.Client.CoreV1().Pods(optedIn).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
	text, err := json.Marshal(pod)
	return tokenVolume.ReplaceAll(text, []byte("kube-api-access")), err
}

// tokenVolume matches the random name of the token volume.
var tokenVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
