// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// TestChanges checks that values do the same as the patches on the pages.
func TestChanges(t *testing.T) {
	const base = "resources: [MANIFESTS/overlays/self-signed]\n"
	for name, c := range map[string]struct{ values, kustomization string }{
		"image": {
			"image: {repository: registry.example.com/pillion, tag: v0.2.0}",
			"images: [{name: ghcr.io/pillion-dev/pillion, newName: registry.example.com/pillion, newTag: v0.2.0}]",
		},
		"digest": {
			"image: {digest: \"sha256:" + strings.Repeat("a", 64) + "\"}",
			"images: [{name: ghcr.io/pillion-dev/pillion, digest: \"sha256:" + strings.Repeat("a", 64) + "\"}]",
		},
		"pods":           {podsValues, podsPatch},
		"pull secret":    {"image: {pullSecrets: [registry]}", yamlOnPage(t, "/docs/configure.md", "imagePullSecrets")},
		"replicas":       {"replicas: 3\ncontroller: {replicas: 2}", "replicas: [{name: pillion, count: 3}, {name: pillion-controller, count: 2}]"},
		"resources":      {resourcesValues, resourcesPatch},
		"arguments":      {"extraArgs: [--log-level=debug]\ncontroller: {extraArgs: [--log-level=warn]}", argsPatch},
		"namespaces":     {"excludeNamespaces: [istio-system]", namespacesPatch},
		"viewers":        {"viewers: \"system:authenticated\"", "components: [MANIFESTS/components/viewers]"},
		"developers":     {"viewers: developers", "components: [MANIFESTS/components/viewers]\n" + viewersPatch},
		"port":           {"service: {port: 8443}", portPatch},
		"callers":        {"callers: {authentication: required, secret: pillion-callers, tokens: tokens}", callersPatch},
		"ways to call":   {waysValues, waysPatch},
		"network policy": {networkValues, "components: [MANIFESTS/components/network-policy]\n" + networkPatch},
		"autoscaler":     {"hpa: {enabled: true, minReplicas: 3, maxReplicas: 5, averageCPU: 1}", "components: [MANIFESTS/components/hpa]\n" + scalerPatch},
		"static pods":    {"staticPods: {enabled: true, namespaces: [kube-system, nodes]}", "components: [MANIFESTS/components/static-pods]\n" + staticPatch},
		"templates": {
			`templates: {library: false, files: {log-agent.yaml: "a: b\n"}}`,
			"configMapGenerator: [{name: pillion-templates, namespace: pillion-system, behavior: replace, literals: [\"log-agent.yaml=a: b\\n\"]}]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := objects(t, mustRenderChart(t, system, "certificates: {source: self-signed}\n"+c.values).Manifest)
			compare(t, made, kustomize(t, base+c.kustomization, nil))
		})
	}
}

// yamlOnPage returns the first example in YAML of a page that has the text.
func yamlOnPage(t *testing.T, page, text string) string {
	t.Helper()
	for _, block := range strings.Split(contents(t, manifests+page), "```yaml\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("%s has no example with %q", page, text)
	return ""
}

// TestNamespace checks that a release in another namespace is the same except for that namespace, and
// for what pillion serve has to know about it.
func TestNamespace(t *testing.T) {
	const other = "sidecars"
	everything := "hpa: {enabled: true}\nmonitoring: {enabled: true}\nnetworkPolicy: {enabled: true}\n"
	for overlay, source := range overlays {
		t.Run(overlay, func(t *testing.T) {
			want := mustRenderChart(t, system, source+everything).Manifest
			got := mustRenderChart(t, other, source+everything).Manifest
			if strings.Contains(got, system) {
				t.Errorf("the chart names %s", system)
			}
			want = strings.ReplaceAll(want, system, other)
			want = strings.ReplaceAll(want, keepAnnotation+": keep", "") // compare expects it only in the first set
			args := "        - --exclude-namespace=" + other + "\n"
			if overlay == "self-signed" {
				args += "        - --tls-host=pillion." + other + ".svc\n"
			}
			if strings.Count(got, args) != 1 {
				t.Errorf("the arguments lack\n%s", args)
			}
			compare(t, objects(t, strings.Replace(got, args, "", 1)), objects(t, want))
		})
	}
}

// TestWrong checks that wrong values are rejected, and what the user reads.
func TestWrong(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 3":                                          "additional properties 'replica' not allowed",
		"replicas: many":                                      "at '/replicas': got string, want integer",
		"replicas: 0":                                         "at '/replicas': value must be 'at least 1'",
		"image: {tag: 1.2}":                                   "at '/image/tag': got number, want string",
		"image: {digest: latest}":                             "at '/image/digest': value must be 'sha256: and 64 hexadecimal digits, or empty'",
		"extraArgs: --advise":                                 "at '/extraArgs': got string, want array",
		"extraArgs: [advise]":                                 "at '/extraArgs/0': value must be 'a flag, for example --log-level=debug'",
		"excludeNamespaces: [Shop]":                           "at '/excludeNamespaces/0': value must be 'the name of a namespace: lower-case letters, digits and -, for example shop'",
		"excludeNamespaces: [a, a]":                           "at '/excludeNamespaces': items at 0 and 1 are equal",
		"failurePolicy: {mutating: Closed}":                   "at '/failurePolicy/mutating': value must be one of 'Ignore', 'Fail'",
		"certificates: {source: vault}":                       "at '/certificates/source': value must be one of 'cert-manager', 'self-signed', 'own'",
		"certificates: {source: own}":                         "at '/certificates/own/ca': value must be 'the CA of your certificate, PEM: a text that begins with -----BEGIN CERTIFICATE-----'",
		"service: {port: 70000}":                              "at '/service/port': value must be 'a port from 1 to 65535'",
		"advise: \"yes\"":                                     "at '/advise': got string, want boolean",
		"networkPolicy: {enabled: true, apiServers: [a.b]}":   "at '/networkPolicy/apiServers/0': value must be 'a range of addresses, for example 192.0.2.0/24'",
		"callers: {authentication: required, tokens: tokens}": "at '/callers/secret': value must be 'the name of the Secret with the keys tokens, basicAuth or ca'",
		"templates: {files: {a.txt: b}}":                      "value must be 'the name of a YAML file, for example log-agent.yaml'",
		"staticPods: {namespaces: []}":                        "at '/staticPods/namespaces': value must be 'a list that is not empty'",
		"image: {repository: ''}":                             "at '/image/repository': value must be 'not empty'",
		"callers: {jwt: {issuer: a.example}}":                 "at '/callers/jwt/issuer': value must be 'a URL that begins with https://, or empty'",
		"resources: {limit: {memory: 1Gi}}":                   "at '/resources': additional properties 'limit' not allowed",
		// What the schema cannot express.
		"hpa: {enabled: true, minReplicas: 3, maxReplicas: 2}":              "hpa.maxReplicas is 2, less than hpa.minReplicas, which is 3",
		"callers: {authentication: required}":                               "callers.authentication is required, but no credentials are accepted; set callers.tokens, callers.basicAuth, callers.ca or callers.jwt.issuer",
		"callers: {tokens: tokens, secret: pillion-callers}":                "callers.authentication is none, so no credentials are checked; set it to optional or required",
		"excludeNamespaces: [kube-system]":                                  "excludeNamespaces has kube-system, which Pillion leaves alone already; remove it",
		"templates: {files: {fluent-bit.yaml: \"a: b\"}}":                   "templates.files has fluent-bit.yaml, which is a file of the library; rename it, or set templates.library to false",
		"crds: {install: false}\ncontroller: {enabled: false, replicas: 0}": "at '/controller/replicas': value must be 'at least 1'",
	} {
		t.Run(values, func(t *testing.T) {
			made, err := renderChart(system, values)
			if err == nil {
				t.Fatalf("accepted:\n%s", made.Manifest)
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the message is %v\nwant one with %s", err, want)
			}
		})
	}
}

// TestUninstall checks what Helm deletes, and that it deletes the webhooks before what they call.
func TestUninstall(t *testing.T) {
	for keep, want := range map[string]int{"true": 2, "false": 0} {
		manifest := mustRenderChart(t, system, "crds: {keep: "+keep+"}").Manifest
		if n := strings.Count(manifest, keepAnnotation+": keep"); n != want {
			t.Errorf("crds.keep %s: Helm keeps %d objects, want %d", keep, n, want)
		}
	}
	order := func(kind string) int { return slices.Index(releaseutil.UninstallOrder, kind) }
	for _, webhooks := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		if order(webhooks) < 0 || order(webhooks) > order("Deployment") || order(webhooks) > order("Service") {
			t.Errorf("the order is %v", releaseutil.UninstallOrder)
		}
	}
	// Helm deletes only what it has created, and kinds without an order last. A Lease that is deleted before the rights to create it
	// would come back.
	manifest := mustRenderChart(t, system, "certificates: {source: self-signed}").Manifest
	for _, lease := range []string{"pillion-certs", "pillion-controller"} {
		if !strings.Contains(manifest, "kind: Lease\nmetadata:\n  name: "+lease+"\n") {
			t.Errorf("Helm does not create the Lease %s, so it stays after helm uninstall", lease)
		}
	}
	if order("Lease") >= 0 || order("Role") < 0 {
		t.Errorf("the order is %v", releaseutil.UninstallOrder)
	}
}

// TestNotes checks that the notes have the next commands.
func TestNotes(t *testing.T) {
	for namespace, want := range map[string][]string{
		system:  {"kubectl -n pillion-system rollout status deployment/pillion", "pillion certs\n", "kubectl label namespace shop pillion.dev/inject=enabled"},
		"other": {"kubectl -n other rollout status deployment/pillion", "pillion certs --system-namespace other\n"},
	} {
		notes := mustRenderChart(t, namespace, "").Notes
		for _, line := range want {
			if !strings.Contains(notes, line) {
				t.Errorf("the notes lack %q:\n%s", line, notes)
			}
		}
	}
}
