// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/library"
	"github.com/pillion-dev/pillion/templates/request"
)

// template is a typical one: a native sidecar, two volumes, a mount for every container of the app.
const template = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: NAME}
spec:
  default: true
  match: {podSelector: {matchLabels: {app: APP}}}
  params: [{name: level, default: info, enum: [debug, info]}]
  pod:
    spec:
      initContainers:
      - name: NAME
        restartPolicy: Always
        image: registry.example/log-agent:1.4.2
        args: ["--level=LEVEL", "--service=SERVICE"]
        resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: NAME-logs, mountPath: /logs, readOnly: true}, {name: NAME-state, mountPath: /state}]
      volumes: [{name: NAME-logs, emptyDir: {}}, {name: NAME-state, emptyDir: {}}]
  forEachContainer:
  - add: {volumeMounts: [{name: NAME-logs, mountPath: /var/log/NAME}]}
`

// features returns two templates that ship with Pillion and use parameters, CEL and
// forEachContainer.
func features() []string { return []string{"fluent-bit.yaml", "opentelemetry-collector.yaml"} }

// askFor sets the annotations by which a pod requests these templates: their names, and the
// parameters without a default.
func askFor(pod *corev1.Pod) {
	pod.Annotations["pillion.dev/templates"] = "fluent-bit,opentelemetry-collector"
	pod.Annotations["fluent-bit.pillion.dev/host"] = "logs.example"
	pod.Annotations["opentelemetry-collector.pillion.dev/endpoint"] = "https://collector.example:4318"
}

//go:embed heavy
var heavy embed.FS // two templates with CEL in nearly every possible place

// setLevel sets the annotation with a parameter of these templates.
func setLevel(pod *corev1.Pod) { pod.Annotations["log-agent.pillion.dev/level"] = "debug" }

// templateSet describes a number of templates. The first ones match the pods.
type templateSet struct {
	n, matching int
	cel         bool // CEL in the leaves; otherwise constants
	features    bool // uses only the two of features
	heavy       bool // uses only the two of heavy
}

// write writes the templates into the folder, one file each.
func (s templateSet) write(dir string) error {
	switch {
	case s.features:
		for _, name := range features() {
			text, err := library.FS.ReadFile(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				return err
			}
		}
		return nil
	case s.heavy:
		files, err := fs.Sub(heavy, "heavy")
		if err != nil {
			return err
		}
		return os.CopyFS(dir, files)
	}
	for i := range s.n {
		app, level, service := "web", "info", "web"
		if i >= s.matching {
			app = "another"
		}
		if s.cel {
			level, service = "${params.level}", "${pod.metadata.labels[?'app'].orValue('unknown')}"
		}
		name := fmt.Sprint("agent-", i)
		text := strings.NewReplacer("NAME", name, "APP", app, "LEVEL", level, "SERVICE", service).Replace(template)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// standalone knows as much about namespaces as `pillion serve --standalone`.
type standalone struct{}

func (standalone) Namespace(name string) (request.Namespace, error) {
	return request.Namespace{Name: name}, nil
}

// newHandler returns Pillion's handler in this process, with metrics and without a log.
func newHandler(dir string) (*webhook.Handler, error) {
	set, err := templates.Load(templates.Source{FS: os.DirFS(dir), Name: ".", Path: dir})
	if err != nil {
		return nil, err
	}
	return handlerOf(set), nil
}

func handlerOf(set *templates.Set) *webhook.Handler {
	injector := inject.New(set)
	judge := inject.NewJudge(injector, nil, true)
	return &webhook.Handler{
		Use:        func(string) (*inject.Injector, *inject.Judge) { return injector, judge },
		Namespaces: standalone{},
		Metrics:    webhook.NewMetrics(prometheus.NewRegistry()),
		Log:        slog.New(slog.DiscardHandler),
	}
}

// ask returns a handler's answer to a review of the pod.
func ask(ctx context.Context, h http.Handler, path string, pod []byte) ([]byte, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path+"?timeout=5s", bytes.NewReader(review(pod)))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), []byte(`"allowed":true`)) {
		return nil, fmt.Errorf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.Bytes(), nil
}

// patched returns the pod with the patch of an answer. Without a patch, it returns the pod
// unchanged.
func patched(pod, answer []byte) ([]byte, error) {
	var a struct {
		Response struct{ Patch []byte }
	}
	if err := json.Unmarshal(answer, &a); err != nil || a.Response.Patch == nil {
		return pod, err
	}
	patch, err := jsonpatch.DecodePatch(a.Response.Patch)
	if err != nil {
		return nil, err
	}
	return patch.Apply(pod)
}

// mutated returns the pod with the handler's additions.
func mutated(ctx context.Context, h http.Handler, pod []byte) ([]byte, error) {
	answer, err := ask(ctx, h, webhook.PathMutate, pod)
	if err != nil {
		return nil, err
	}
	return patched(pod, answer)
}
