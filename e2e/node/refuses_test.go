// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// unstarted is a pod that the API server accepts and the kubelet does not start.
type unstarted struct {
	name     string
	forced   string // its spec, with what the template would add
	says     string // what the node says about it
	template string // the spec of the template, or "" if no template can have this
	pod      string // the spec without the template, which starts
	fits     string // the spec of a pod into which the template is injected
}

const (
	standInApp  = `name: app, image: "registry.example/standin:1", args: ["-serve=:8000"]`
	standInSide = `name: side, image: "registry.example/standin:1", restartPolicy: Always`
	plainPod    = `containers: [{` + standInApp + `}]`
)

func refusedPods() []unstarted {
	return []unstarted{
		{
			"user", `securityContext: {runAsNonRoot: true}, initContainers: [{` + standInSide + `, securityContext: {runAsUser: 0}}], containers: [{` + standInApp + `}]`, "runAsUser breaks non-root policy",
			`pod: {spec: {initContainers: [{` + standInSide + `, securityContext: {runAsUser: 0}}]}}`, `securityContext: {runAsNonRoot: true}, ` + plainPod, plainPod,
		},
		{
			"inherited-user", `securityContext: {runAsUser: 0}, initContainers: [{` + standInSide + `, securityContext: {runAsNonRoot: true}}], containers: [{` + standInApp + `}]`, "runAsUser breaks non-root policy",
			`pod: {spec: {initContainers: [{` + standInSide + `, securityContext: {runAsNonRoot: true}}]}}`, `securityContext: {runAsUser: 0}, ` + plainPod, plainPod,
		},
		{
			"hook", `containers: [{` + standInApp + `, lifecycle: {postStart: {httpGet: {port: web}}}}]`, "PostStartHook failed",
			`forEachContainer: [{add: {lifecycle: {postStart: {httpGet: {port: web}}}}}]`, plainPod, `containers: [{` + standInApp + `, ports: [{name: web, containerPort: 8000}]}]`,
		},
		{
			"probe", `initContainers: [{` + standInSide + `, ports: [{name: mine, containerPort: 80}], startupProbe: {periodSeconds: 1, httpGet: {port: web}}}], containers: [{` + standInApp + `}]`, `port "web" not found`,
			`pod: {spec: {initContainers: [{` + standInSide + `, ports: [{name: web, containerPort: 80}], startupProbe: {httpGet: {port: web}}}]}}`,
			`initContainers: [{` + standInSide + `, ports: [{name: mine, containerPort: 80}]}], containers: [{` + standInApp + `}]`, plainPod,
		},
		{
			"sub-path", `volumes: [{name: logs, emptyDir: {}}], containers: [{` + standInApp + `, env: [{name: POD, value: ""}], volumeMounts: [{name: logs, mountPath: /logs, subPathExpr: $(POD)}]}]`, "missing value for POD",
			`pod: {spec: {volumes: [{name: logs, emptyDir: {}}]}}, forEachContainer: [{add: {env: [{name: POD, value: a}], volumeMounts: [{name: logs, mountPath: /logs, subPathExpr: $(POD)}]}}]`,
			`containers: [{` + standInApp + `, env: [{name: POD, value: ""}]}]`, plainPod,
		},
		{
			"sub-path-absolute", `volumes: [{name: logs, emptyDir: {}}], containers: [{` + standInApp + `, env: [{name: POD, value: /a}], volumeMounts: [{name: logs, mountPath: /logs, subPathExpr: $(POD)}]}]`, "must not be an absolute path",
			`pod: {spec: {volumes: [{name: logs, emptyDir: {}}]}}, forEachContainer: [{add: {env: [{name: POD, value: a}], volumeMounts: [{name: logs, mountPath: /logs, subPathExpr: $(POD)}]}}]`,
			`containers: [{` + standInApp + `, env: [{name: POD, value: /a}]}]`, plainPod,
		},
		{
			"file-inside", `volumes: [{name: config, configMap: {name: config}}, {name: ca, configMap: {name: config}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app}, {name: ca, mountPath: /etc/app/ca.pem, subPath: key}]}]`, `to rootfs at "/etc/app/ca.pem"`,
			`pod: {spec: {volumes: [{name: ca, configMap: {name: config}}]}}, forEachContainer: [{add: {volumeMounts: [{name: ca, mountPath: /etc/app/ca.pem, subPath: key}]}}]`,
			`volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app}]}]`, plainPod,
		},
		{
			"socket-inside", `volumes: [{name: config, configMap: {name: config}}, {name: socket, hostPath: {path: /tmp/refused.sock, type: FileOrCreate}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app}, {name: socket, mountPath: /etc/app/run.sock}]}]`, `to rootfs at "/etc/app/run.sock"`,
			`pod: {spec: {volumes: [{name: socket, hostPath: {path: /tmp/refused.sock, type: FileOrCreate}}]}}, forEachContainer: [{add: {volumeMounts: [{name: socket, mountPath: /etc/app/run.sock}]}}]`,
			`volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app}]}]`, plainPod,
		},
		{
			"expression-inside", `volumes: [{name: config, configMap: {name: config}}, {name: ca, configMap: {name: config}}], containers: [{` + standInApp + `, env: [{name: KEY, value: key}], volumeMounts: [{name: config, mountPath: /etc/app}, {name: ca, mountPath: /etc/app/ca.pem, subPathExpr: $(KEY)}]}]`, `to rootfs at "/etc/app/ca.pem"`,
			`pod: {spec: {volumes: [{name: ca, configMap: {name: config}}]}}, forEachContainer: [{add: {env: [{name: KEY, value: key}], volumeMounts: [{name: ca, mountPath: /etc/app/ca.pem, subPathExpr: $(KEY)}]}}]`,
			`volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app}]}]`, plainPod,
		},
		{
			"etc", `volumes: [{name: etc, configMap: {name: config, items: [{key: key, path: hosts}]}}], containers: [{` + standInApp + `, volumeMounts: [{name: etc, mountPath: /etc}]}]`, `to rootfs at "/etc/hostname"`,
			`pod: {spec: {volumes: [{name: etc, configMap: {name: config, items: [{key: key, path: hosts}]}}]}}, forEachContainer: [{where: "!has(container.workingDir)", add: {volumeMounts: [{name: etc, mountPath: /etc}]}}]`,
			plainPod, `containers: [{` + standInApp + `, workingDir: /}]`,
		},
		{
			"working-dir-inside", `volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, workingDir: /srv/app, volumeMounts: [{name: config, mountPath: /srv}]}]`, `mkdir /srv/app: read-only file system`,
			`pod: {spec: {volumes: [{name: config, configMap: {name: config}}]}}, forEachContainer: [{add: {volumeMounts: [{name: config, mountPath: /srv}]}}]`,
			`containers: [{` + standInApp + `, workingDir: /srv/app}]`, plainPod,
		},
		{
			"working-dir-file", `volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, workingDir: /srv, volumeMounts: [{name: config, mountPath: /srv, subPath: key}]}]`, `mkdir /srv: not a directory`,
			`pod: {spec: {volumes: [{name: config, configMap: {name: config}}]}}, forEachContainer: [{add: {volumeMounts: [{name: config, mountPath: /srv, subPath: key}]}}]`,
			`containers: [{` + standInApp + `, workingDir: /srv}]`, plainPod,
		},
		{
			"in-file", `volumes: [{name: config, configMap: {name: config}}, {name: data, emptyDir: {}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app.conf, subPath: key}, {name: data, mountPath: /etc/app.conf/data}]}]`, `to rootfs at "/etc/app.conf/data"`,
			`pod: {spec: {volumes: [{name: data, emptyDir: {}}]}}, forEachContainer: [{add: {volumeMounts: [{name: data, mountPath: /etc/app.conf/data}]}}]`,
			`volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app.conf, subPath: key}]}]`, plainPod,
		},
		{
			"in-empty", `volumes: [{name: cache, emptyDir: {}}, {name: data, emptyDir: {}}], containers: [{` + standInApp + `, volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}, {name: data, mountPath: /cache/data}]}]`, `to rootfs at "/cache/data"`,
			`pod: {spec: {volumes: [{name: data, emptyDir: {}}]}}, forEachContainer: [{add: {volumeMounts: [{name: data, mountPath: /cache/data}]}}]`,
			`volumes: [{name: cache, emptyDir: {}}], containers: [{` + standInApp + `, volumeMounts: [{name: cache, mountPath: /cache, readOnly: true}]}]`, plainPod,
		},
		{
			"in-part", `volumes: [{name: config, configMap: {name: config, items: [{key: key, path: app/key}]}}, {name: data, emptyDir: {}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app, subPath: app}, {name: data, mountPath: /etc/app/data}]}]`, `to rootfs at "/etc/app/data"`,
			`pod: {spec: {volumes: [{name: data, emptyDir: {}}]}}, forEachContainer: [{add: {volumeMounts: [{name: data, mountPath: /etc/app/data}]}}]`,
			`volumes: [{name: config, configMap: {name: config, items: [{key: key, path: app/key}]}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app, subPath: app}]}]`, plainPod,
		},
		{
			"part-of-file", `volumes: [{name: config, configMap: {name: config, items: [{key: key, path: app}]}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /etc/app, subPath: app/data}]}]`, `failed to prepare subPath`,
			`pod: {spec: {volumes: [{name: data, emptyDir: {}}]}}, forEachContainer: [{add: {volumeMounts: [{name: "${'config'}", mountPath: /etc/app, subPath: app/data}]}}]`,
			`volumes: [{name: config, configMap: {name: config, items: [{key: key, path: app}]}}], containers: [{` + standInApp + `}]`, `volumes: [{name: config, emptyDir: {}}], ` + plainPod,
		},
		{
			"in-token", `volumes: [{name: config, configMap: {name: config}}], containers: [{` + standInApp + `, volumeMounts: [{name: config, mountPath: /var/run/secrets/kubernetes.io/serviceaccount/extra, subPath: key}]}]`, `serviceaccount/extra"`,
			`pod: {spec: {volumes: [{name: config, configMap: {name: config}}]}}, forEachContainer: [{add: {volumeMounts: [{name: config, mountPath: /var/run/secrets/kubernetes.io/serviceaccount/extra, subPath: key}]}}]`,
			plainPod, `automountServiceAccountToken: false, ` + plainPod,
		},
		{
			"termination-message", `volumes: [{name: logs, emptyDir: {}}], containers: [{` + standInApp + `, terminationMessagePath: /logs, volumeMounts: [{name: logs, mountPath: /logs}]}]`, `"/logs"`,
			`pod: {spec: {volumes: [{name: logs, emptyDir: {}}]}}, forEachContainer: [{add: {volumeMounts: [{name: logs, mountPath: /logs}]}}]`,
			`containers: [{` + standInApp + `, terminationMessagePath: /logs}]`, plainPod,
		},
		{
			"proc", `volumes: [{name: logs, emptyDir: {}}], containers: [{` + standInApp + `, volumeMounts: [{name: logs, mountPath: /proc/logs}]}]`, "inside /proc",
			`pod: {spec: {volumes: [{name: logs, emptyDir: {}}]}}, forEachContainer: [{add: {volumeMounts: [{name: logs, mountPath: "${pod.spec.?hostname.orValue('') == 'proc' ? '/proc/logs' : '/logs'}"}]}}]`,
			`hostname: proc, ` + plainPod, plainPod,
		},
		{
			"resource", `volumes: [{name: info, downwardAPI: {items: [{path: memory, resourceFieldRef: {containerName: web, resource: limits.memory}}]}}], containers: [{` + standInApp + `, volumeMounts: [{name: info, mountPath: /info}]}]`, "container web not found",
			`pod: {spec: {volumes: [{name: info, downwardAPI: {items: [{path: memory, resourceFieldRef: {containerName: web, resource: limits.memory}}]}}]}}, forEachContainer: [{add: {volumeMounts: [{name: info, mountPath: /info}]}}]`,
			plainPod, `containers: [{name: web, image: "registry.example/standin:1"}]`,
		},
		{
			"resource-of-variable", `containers: [{` + standInApp + `, env: [{name: MEMORY, valueFrom: {resourceFieldRef: {containerName: web, resource: limits.memory}}}]}]`, "container web not found",
			`forEachContainer: [{add: {env: [{name: MEMORY, valueFrom: {resourceFieldRef: {containerName: web, resource: limits.memory}}}]}}]`,
			plainPod, `containers: [{name: web, image: "registry.example/standin:1"}]`,
		},
		{
			"pages", `volumes: [{name: pages, emptyDir: {medium: HugePages}}], containers: [{` + standInApp + `, volumeMounts: [{name: pages, mountPath: /pages}]}]`, "no resource request for huge pages",
			`pod: {spec: {volumes: [{name: pages, emptyDir: {medium: HugePages}}], initContainers: [{` + standInSide + `, resources: {limits: {memory: 16Mi, hugepages-2Mi: 2Mi}}, volumeMounts: [{name: pages, mountPath: /pages}]}]}}`,
			`resources: {limits: {memory: 64Mi, cpu: 100m}}, ` + plainPod, plainPod,
		},
		{name: "image", forced: `containers: [{name: app, image: "registry.example/Standin:1"}]`, says: "InvalidImageName"},
		{name: "tcp-hook", forced: `containers: [{` + standInApp + `, lifecycle: {postStart: {tcpSocket: {port: 8000}}}}]`, says: "PostStartHook failed"},
		{name: "working-dir", forced: `containers: [{` + standInApp + `, workingDir: data}]`, says: "Cwd must be an absolute path"},
		{name: "memory", forced: `containers: [{` + standInApp + `, resources: {limits: {memory: "64"}}}]`, says: "no space left on device"},
		{name: "memory-almost", forced: `containers: [{` + standInApp + `, resources: {limits: {memory: "1048575"}}}]`, says: "memory limit"},
	}
}

// TestKubeletRefuses shows on the node what Pillion takes into account: the API server accepts each pod, but the kubelet never
// starts it. If a template would make such a pod, it is skipped, and the app runs.
func TestKubeletRefuses(t *testing.T) {
	installed(t)
	ns, byHand := optedInNamespace(t), namespace(t, nil)
	for _, name := range []string{ns, byHand} {
		apply(t, name, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {key: value}}`)
	}
	cases := refusedPods()
	for i := range cases {
		c := &cases[i]
		apply(t, byHand, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 0, %s}}`, c.name, c.forced))
		if c.template != "" {
			apply(t, ns, fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: unstarted-%s}, spec: {description: For a test., %s}}`, c.name, c.template))
			t.Cleanup(func() {
				if _, err := env.RunKubectl(context.Background(), nil, "delete", "clustersidecartemplate", "unstarted-"+c.name); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for i := range cases {
		c := &cases[i]
		t.Run(c.name, func(t *testing.T) {
			wantRefused(t, byHand, c)
			if c.template != "" {
				wantSkipped(t, ns, c)
			}
		})
	}
}

// wantRefused waits until the node says why it does not start the pod.
func wantRefused(t *testing.T, ns string, c *unstarted) {
	t.Helper()
	eventually(t, "the node says: "+c.says, func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(ns).Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		events, err := env.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + c.name})
		if err != nil {
			return err
		}
		text := stateOf(pod)
		for i := range events.Items {
			text += "\n" + events.Items[i].Message
		}
		if !strings.Contains(text, c.says) {
			return errors.New(text)
		}
		if ready(pod) {
			t.Errorf("the pod is ready: %s", text)
		}
		return nil
	})
}

// wantSkipped checks that a template is used, but not for the pod, whose app runs.
func wantSkipped(t *testing.T, ns string, c *unstarted) {
	t.Helper()
	template := "unstarted-" + c.name
	pod := func(spec string) *corev1.Pod {
		var p corev1.Pod
		text := fmt.Sprintf(`{metadata: {name: %s, labels: {app: %[1]s}, annotations: {pillion.dev/templates: %s, %[2]s.pillion.dev/customize: "true"}}, spec: {terminationGracePeriodSeconds: 0, %s}}`, c.name, template, spec)
		if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return &p
	}
	injected := func(p *corev1.Pod) bool { return p.Annotations[template+".pillion.dev/injected"] != "" }
	eventually(t, "the template is in use", func(ctx context.Context) error {
		made, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod(c.fits), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if !injected(made) {
			return errors.New("a pod is without it")
		}
		return agree(ctx)
	})
	made, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod(c.pod), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if injected(made) {
		t.Errorf("the template was injected")
	}
	if text := decisions(made); !strings.Contains(text, "conflict") {
		t.Errorf("there is no conflict:\n%s", text)
	}
	readyPods(t, ns, "app="+c.name, 1)
}
