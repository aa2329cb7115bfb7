// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// fresh are conditions that platform teams might write, written without knowledge of the rules.
var fresh = strings.Split(strings.TrimSpace(`
has(pod.metadata.labels) && 'app.kubernetes.io/component' in pod.metadata.labels && pod.metadata.labels['app.kubernetes.io/component'] in ['api', 'worker']
pod.metadata.?annotations['prometheus.io/scrape'].orValue('false') == 'true'
pod.metadata.annotations[?'sidecar.example.com/inject'].orValue('yes').lowerAscii() in ['y', 'yes', 'true', 'on']
pod.spec.containers.exists(c, c.image.startsWith('registry.example.com/java/'))
pod.spec.containers.all(c, !c.image.endsWith(':latest'))
pod.spec.containers.exists(c, c.image.contains('/postgres:'))
pod.spec.containers.exists(c, c.image.matches('^docker\\.io/library/nginx:1\\.[0-9]+$'))
pod.spec.containers.exists(c, has(c.ports) && c.ports.exists(p, p.containerPort == 8080))
pod.spec.containers.exists(c, has(c.ports) && c.ports.exists(p, p.name == 'metrics' && p.containerPort > 1024))
pod.spec.containers.exists(c, c.?ports.orValue([]).exists(p, p.?name.orValue('') == 'http'))
pod.spec.containers.exists(c, has(c.env) && c.env.exists(e, e.name == 'JAVA_TOOL_OPTIONS'))
pod.spec.containers.exists(c, has(c.env) && c.env.exists(e, e.name == 'SPRING_PROFILES_ACTIVE' && e.value.contains('prod')))
!pod.spec.containers.exists(c, has(c.env) && c.env.exists(e, e.name == 'HTTP_PROXY'))
has(pod.metadata.ownerReferences) && pod.metadata.ownerReferences.exists(o, o.kind == 'StatefulSet')
pod.metadata.?ownerReferences.orValue([]).all(o, o.kind != 'Job')
has(pod.metadata.ownerReferences) && pod.metadata.ownerReferences[0].kind == 'ReplicaSet' && pod.metadata.ownerReferences[0].name.startsWith('checkout-')
has(pod.metadata.generateName) && pod.metadata.generateName.startsWith('worker-')
has(pod.spec.volumes) && pod.spec.volumes.exists(v, has(v.persistentVolumeClaim))
has(pod.spec.volumes) && pod.spec.volumes.exists(v, has(v.configMap) && v.configMap.name == 'app-config')
pod.spec.?volumes.orValue([]).exists(v, v.name.startsWith('data-') && has(v.emptyDir))
pod.spec.containers.exists(c, has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath == '/var/log' && !m.?readOnly.orValue(false)))
pod.spec.containers.exists(c, has(c.resources.limits) && 'nvidia.com/gpu' in c.resources.limits)
pod.spec.containers.all(c, has(c.resources) && has(c.resources.requests) && 'memory' in c.resources.requests)
ns.name.startsWith('team-')
ns.name in ['payments', 'billing'] || ns.labels[?'tier'].orValue('') == 'gold'
ns.name.matches('^(dev|test)-[a-z]+$')
ns.labels[?'env'].orValue('dev') == 'prod' && pod.metadata.labels[?'critical'].orValue('no') == 'yes'
has(pod.spec.serviceAccountName) && pod.spec.serviceAccountName != 'default'
pod.spec.?serviceAccountName.orValue('default').endsWith('-runner')
has(pod.spec.nodeSelector) && pod.spec.nodeSelector[?'kubernetes.io/arch'].orValue('amd64') == 'arm64'
has(pod.spec.tolerations) && pod.spec.tolerations.exists(t, t.key == 'dedicated' && t.value == 'batch')
!has(pod.spec.securityContext) || !has(pod.spec.securityContext.runAsNonRoot) || !pod.spec.securityContext.runAsNonRoot
pod.spec.containers.exists(c, has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged)
pod.spec.?restartPolicy.orValue('Always') == 'Never'
pod.spec.?terminationGracePeriodSeconds.orValue(30) >= 60
pod.spec.?priorityClassName.orValue('') != '' && !pod.spec.?hostNetwork.orValue(false)
params.tier == 'db' && pod.spec.containers.exists(c, c.name == params.tier)
params.on || pod.metadata.labels[?'mesh'].orValue('off') == 'on'
pod.spec.containers.exists(c, has(c.livenessProbe) && has(c.livenessProbe.httpGet) && c.livenessProbe.httpGet.path == '/healthz')
pod.spec.containers.exists(c, has(c.command) && c.command[0].endsWith('java')) || pod.metadata.labels[?'runtime'].orValue('') == 'jvm'
pod.metadata.labels.exists(k, k.startsWith('feature.example.com/') && pod.metadata.labels[k] == 'enabled')
pod.metadata.annotations[?'example.com/zones'].orValue('').split(',').exists(z, z == 'eu-west')
int(pod.metadata.annotations[?'example.com/workers'].orValue('1')) > 4
pod.spec.containers.filter(c, has(c.ports)).size() >= 2
`), "\n")

// TestFresh checks that nearly all templates get a sample, and that the engine injects them into
// it.
func TestFresh(t *testing.T) {
	t.Parallel()
	met := 0
	for _, condition := range fresh {
		of := withCondition(t, condition)
		s, ok := meet(t, of)
		switch {
		case !ok:
			t.Logf("no sample for %s", condition)
		case decided(t, of, s).Code != inject.CodeInjected:
			t.Errorf("%s: not injected into %s", condition, s.Pod)
		default:
			met++
		}
	}
	t.Logf("%d of %d get a sample", met, len(fresh))
	if met < len(fresh)-1 {
		t.Error("that is too few")
	}
}
