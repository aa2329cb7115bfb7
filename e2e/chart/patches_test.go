// SPDX-License-Identifier: Apache-2.0

package chart

// Values and the patches that do the same.
const (
	podsValues = `
image: {pullPolicy: Always, pullSecrets: [registry]}
nodeSelector: {example.com/pool: system}
tolerations: [{key: system, operator: Exists}]
`
	podsPatch = `
patches:
- target: {kind: Deployment}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/imagePullPolicy, value: Always}
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: registry}]}
    - {op: add, path: /spec/template/spec/nodeSelector/example.com~1pool, value: system}
    - {op: add, path: /spec/template/spec/tolerations, value: [{key: system, operator: Exists}]}
`
	resourcesValues = `
resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}
controller: {resources: {limits: {memory: 512Mi}}}
`
	resourcesPatch = `
patches:
- target: {kind: Deployment, name: pillion$}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 1}
    - {op: replace, path: /spec/template/spec/containers/0/resources/limits/memory, value: 1Gi}
- target: {kind: Deployment, name: pillion-controller}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/resources/limits/memory, value: 512Mi}
`
	argsPatch = `
patches:
- target: {kind: Deployment, name: pillion$}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --log-level=debug}
- target: {kind: Deployment, name: pillion-controller}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --log-level=warn}
`
	// The patch on the page "Configure", and one for each of the other entries.
	namespacesPatch = `
patches:
- target:
    kind: (Mutating|Validating)WebhookConfiguration
  patch: |
    - {op: add, path: /webhooks/0/namespaceSelector/matchExpressions/1/values/-, value: istio-system}
    - {op: add, path: /webhooks/1/namespaceSelector/matchExpressions/1/values/-, value: istio-system}
- target: {kind: ValidatingWebhookConfiguration, name: pillion$}
  patch: |
    - {op: add, path: /webhooks/2/namespaceSelector/matchExpressions/1/values/-, value: istio-system}
- target: {kind: Deployment, name: pillion$}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --exclude-namespace=istio-system}
`
	portPatch = `
patches:
- target: {kind: Service, name: pillion}
  patch: |
    - {op: replace, path: /spec/ports/0/port, value: 8443}
- target: {group: admissionregistration.k8s.io, kind: (Mutating|Validating)WebhookConfiguration}
  patch: |
    - {op: replace, path: /webhooks/0/clientConfig/service/port, value: 8443}
    - {op: replace, path: /webhooks/1/clientConfig/service/port, value: 8443}
- target: {kind: ValidatingWebhookConfiguration}
  patch: |
    - {op: replace, path: /webhooks/2/clientConfig/service/port, value: 8443}
- target: {kind: ValidatingWebhookConfiguration, name: pillion$}
  patch: |
    - {op: replace, path: /webhooks/3/clientConfig/service/port, value: 8443}
`
	viewersPatch = `
patches:
- target: {kind: ClusterRoleBinding, name: pillion-viewers}
  patch: |
    - {op: replace, path: /subjects/0/name, value: developers}
`

	callersPatch = `
patches:
- target: {kind: Deployment, name: pillion$}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-authentication=required}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-token-file=/etc/pillion/callers/tokens}
    - op: add
      path: /spec/template/spec/containers/0/volumeMounts/-
      value: {name: callers, mountPath: /etc/pillion/callers, readOnly: true}
    - op: add
      path: /spec/template/spec/volumes/-
      value: {name: callers, secret: {secretName: pillion-callers}}
`
	waysValues = `
callers:
  authentication: optional
  secret: pillion-callers
  basicAuth: users
  ca: ca.crt
  names: [kube-apiserver]
  jwt: {issuer: https://kubernetes.default.svc, audiences: [pillion], subjects: ["system:serviceaccount:a:b"]}
`
	waysPatch = `
patches:
- target: {kind: Deployment, name: pillion$}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-authentication=optional}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-basic-auth-file=/etc/pillion/callers/users}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-ca-file=/etc/pillion/callers/ca.crt}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-name=kube-apiserver}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--caller-jwt-issuer=https://kubernetes.default.svc"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --caller-jwt-audience=pillion}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--caller-jwt-subject=system:serviceaccount:a:b"}
    - op: add
      path: /spec/template/spec/containers/0/volumeMounts/-
      value: {name: callers, mountPath: /etc/pillion/callers, readOnly: true}
    - op: add
      path: /spec/template/spec/volumes/-
      value: {name: callers, secret: {secretName: pillion-callers}}
`
	networkValues = `
networkPolicy:
  enabled: true
  apiServers: [192.0.2.0/28, 198.51.100.1/32]
  monitoringNamespace: prometheus
  extraEgress: [{ports: [{protocol: UDP, port: 53}]}]
`
	networkPatch = `
patches:
- target: {kind: NetworkPolicy}
  patch: |
    - op: add
      path: /spec/egress/0/to
      value: [{ipBlock: {cidr: 192.0.2.0/28}}, {ipBlock: {cidr: 198.51.100.1/32}}]
- target: {kind: NetworkPolicy, name: pillion$}
  patch: |
    - op: add
      path: /spec/ingress/0/from
      value: [{ipBlock: {cidr: 192.0.2.0/28}}, {ipBlock: {cidr: 198.51.100.1/32}}]
    - {op: replace, path: /spec/ingress/1/from/0/namespaceSelector/matchLabels/kubernetes.io~1metadata.name, value: prometheus}
    - {op: add, path: /spec/egress/-, value: {ports: [{protocol: UDP, port: 53}]}}
- target: {kind: NetworkPolicy, name: pillion-controller}
  patch: |
    - {op: replace, path: /spec/ingress/0/from/0/namespaceSelector/matchLabels/kubernetes.io~1metadata.name, value: prometheus}
`
	scalerPatch = `
patches:
- target: {kind: HorizontalPodAutoscaler}
  patch: |
    - {op: replace, path: /spec/minReplicas, value: 3}
    - {op: replace, path: /spec/maxReplicas, value: 5}
    - {op: replace, path: /spec/metrics/0/resource/target/averageValue, value: 1}
`
	staticPatch = `
patches:
- target: {kind: ValidatingAdmissionPolicyBinding, name: pillion-static-pods}
  patch: |
    - {op: add, path: /spec/matchResources/namespaceSelector/matchExpressions/0/values/-, value: nodes}
`
)
