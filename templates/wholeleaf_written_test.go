// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestWholeLikeWritten checks that the rules for written objects hold for computed ones: both are
// valid, or both are rejected, when the template is loaded or for the pod.
func TestWholeLikeWritten(t *testing.T) {
	t.Parallel()
	for field, values := range map[string][]string{
		"securityContext": {
			`{}`, `{"runAsUser":5,"capabilities":{"drop":["ALL"]}}`, `{"runAsUser":-1}`, `{"runAsUser":"5"}`, `{"privileged":true,"allowPrivilegeEscalation":false}`,
			`{"seccompProfile":{"type":"Localhost"}}`, `{"seccompProfile":{"localhostProfile":"a"}}`, `{"seccompProfile":{"type":"Other"}}`, `{"windowsOptions":{}}`, `{"user":5}`,
			`{"capabilities":{"add":["CAP_SYS_ADMIN"]},"allowPrivilegeEscalation":false}`, `{"capabilities":["ALL"]}`,
			`{"runAsNonRoot":true,"runAsUser":0}`, `{"runAsNonRoot":false,"runAsUser":0}`, `{"runAsNonRoot":true}`,
		},
		"ports": {
			`[{"containerPort":80}]`, `[{"containerPort":0}]`, `[{"name":"a"}]`, `[{"containerPort":80,"name":"A_B"}]`, `[{"containerPort":80,"protocol":"HTTP"}]`,
			`[{"containerPort":80},{"containerPort":80}]`, `[{"containerPort":80,"name":"a"},{"containerPort":81,"name":"a"}]`, `[{"containerPort":99999999999}]`, `[{"containerPort":80,"hostPort":70000}]`,
		},
		"env": {
			`[{"name":"A","value":"b"}]`, `[{"name":"A"}]`, `[{"value":"b"}]`, `[{"name":""}]`, `[{"name":"A","value":1}]`, `[{"name":"A","value":"b"},{"name":"A","value":"c"}]`,
			`[{"name":"A","value":"b","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]`, `[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.x"}}}]`, `[{"name":"A","valueFrom":{}}]`,
			`[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s"}}}]`, `[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"},"fieldRef":{"fieldPath":"metadata.name"}}}]`,
		},
		"envFrom":      {`[{"secretRef":{"name":"s"}}]`, `[{"secretRef":{"name":"S!"}}]`, `[{"prefix":"A"}]`, `[{"secretRef":{"name":"s"},"configMapRef":{"name":"s"}}]`},
		"resources":    {`{"limits":{"cpu":"1"},"requests":{"cpu":"500m"}}`, `{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}`, `{"limits":{"cpu":"x"}}`, `{"limits":{"disk":"1"}}`, `{"claims":[{"name":"a"}]}`, `{"limits":{"cpu":"-1"}}`, `{"limits":{"memory":"64"}}`, `{"limits":{"memory":"0"}}`, `{"limits":{"memory":"100m"}}`},
		"volumeMounts": {`[{"name":"v","mountPath":"/a"}]`, `[{"name":"v"}]`, `[{"mountPath":"/a"}]`, `[{"name":"v","mountPath":""}]`, `[{"name":"v","mountPath":"/a","subPath":"../x"}]`, `[{"name":"v","mountPath":"/a","subPathExpr":"$(POD)"}]`, `[{"name":"v","mountPath":"/a","subPathExpr":"$(DB_PORT)"}]`, `[{"name":"v","mountPath":"/a","readonly":true}]`},
		"livenessProbe": {
			`{"httpGet":{"port":80}}`, `{"httpGet":{"port":"http"}}`, `{"httpGet":{"port":"HTTP"}}`, `{"httpGet":{}}`, `{"periodSeconds":1}`, `{"tcpSocket":{"port":1},"httpGet":{"port":1}}`,
			`{"tcpSocket":{"port":1},"successThreshold":2}`, `{"tcpSocket":{"port":1},"periodSeconds":-1}`, `{"exec":{}}`, `{"exec":{"command":["a"]}}`, `{"exec":{"command":"a"}}`,
		},
		"readinessProbe": {`{"tcpSocket":{"port":1},"successThreshold":2}`, `{"tcpSocket":{"port":1},"terminationGracePeriodSeconds":2}`},
		"lifecycle":      {`{"preStop":{"sleep":{"seconds":1}}}`, `{"preStop":{}}`, `{"preStop":{"sleep":{"seconds":-1}}}`, `{"stopSignal":"SIGFOO"}`, `{"preStop":{"tcpSocket":{"port":80}}}`, `{"postStart":{"httpGet":{"port":"http"}}}`},
		"resizePolicy":   {`[{"resourceName":"cpu","restartPolicy":"NotRequired"}]`, `[{"resourceName":"cpu"}]`, `[{"resourceName":"cpu","restartPolicy":"NotRequired"},{"resourceName":"cpu","restartPolicy":"NotRequired"}]`},
	} {
		for _, value := range values {
			written, literal := accepts(t, field, value), strings.ReplaceAll(literalOf(t, value), `"`, `\"`)
			for _, way := range []string{"%s", "true ? %[1]s : %[1]s", "cel.bind(x, %s, x)"} {
				expression := fmt.Sprintf(way, literal)
				if computed := accepts(t, field, fmt.Sprintf(`"${%s}"`, expression)); (written == nil) != (computed == nil) {
					t.Errorf("%s: %s:\nwritten: %v\ncomputed: %v", field, expression, written, computed)
				}
			}
		}
	}
}

// accepts returns why a container cannot have a field with that value, when its template is loaded or
// for a pod.
func accepts(t *testing.T, field, value string) error {
	t.Helper()
	found, problems := Parse("x", fmt.Appendf(nil, "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: x}\nspec: {pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, %s: %s}]}}}", field, value))
	if len(problems) > 0 {
		return problems
	}
	n, err := found[0].Render(wholeInput(t, `{"spec":{"containers":[{"name":"a"}]}}`), nil)
	if err == nil {
		_, err = jsontree.Parse(n.AppendTo(nil))
	}
	return err
}

// literalOf returns JSON as a CEL literal.
func literalOf(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return celLiteral(v)
}

func celLiteral(v any) string {
	var all []string
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, fmt.Sprintf("'%s': %s", key, celLiteral(v[key])))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case []any:
		for _, item := range v {
			all = append(all, celLiteral(item))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case string:
		return "'" + v + "'"
	case float64:
		return fmt.Sprintf("%d", int64(v))
	}
	return fmt.Sprint(v)
}
