// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// peersVariable names a folder with the cases of other injectors and the script compare.py that compares them.
const peersVariable = "TEST_PEERS"

// TestPeers compares the results with what the other injectors make of the same pods. The templates have no default for
// what the installation of another injector knows, such as its trust anchors, so the namespace has the values.
func TestPeers(t *testing.T) {
	t.Parallel()
	folder := os.Getenv(peersVariable)
	if folder == "" {
		t.Skipf("%s names no folder with the cases of other injectors", peersVariable)
	}
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import yaml").CombinedOutput(); err != nil {
		t.Fatalf("%s is set, and the comparison needs python3 with PyYAML: %v\n%s", peersVariable, err, out)
	}
	eachPeer(t, func(t *testing.T, peer string) {
		if _, err := os.Stat(filepath.Join(folder, peer)); err != nil {
			t.Skipf("%s has no cases of %s", peersVariable, peer)
		}
		cases, err := os.ReadDir(filepath.Join(folder, peer))
		if err != nil {
			t.Fatal(err)
		}
		installations := map[string][]string{}
		for _, c := range cases {
			if c.IsDir() {
				installation := installationOf(peer, c.Name())
				installations[installation] = append(installations[installation], peer+"/"+c.Name())
			}
		}
		if len(installations) == 0 {
			t.Errorf("%s has no cases of %s", peersVariable, peer)
		}
		for installation, names := range installations {
			t.Run(filepath.Base(installation), func(t *testing.T) {
				comparePeer(t, folder, installationValues(t, folder, peer, installation), names)
			})
		}
	})
}

// comparePeer compares the results for the cases, which are in a namespace with the annotations.
func comparePeer(t *testing.T, folder string, annotations map[string]string, cases []string) {
	t.Helper()
	// TestMain puts pillion, which is this program, into the PATH.
	script := `case $1 in inject) exec pillion "$@"`
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		script += " --namespace-annotation '" + key + "=" + annotations[key] + "'"
	}
	program := filepath.Join(t.ArtifactDir(), "pillion")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+";; esac\nexec pillion \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{filepath.Join(folder, "compare.py"), "-v", from}, cases...)...)
	cmd.Env = append(os.Environ(), "PILLION="+program)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 3 || !slices.Contains(cases, words[0]+"/"+words[1]) {
			continue
		}
		found++
		verdict := strings.Join(words[2:], " ")
		if !slices.Contains([]string{"equal", "equal but identity", "by design"}, verdict) {
			t.Errorf("%s: %s", words[1], verdict)
		}
	}
	if t.Failed() || found != len(cases) || bytes.Contains(out, []byte("second injection")) {
		t.Errorf("%d of %d cases\n%s", found, len(cases), out)
	}
}

// installationOf returns the case whose values a case has. Most cases of an injector are of one installation.
func installationOf(peer, name string) string {
	if peer == "otel" && (name == "multi" || name == "nodejs-volume") {
		return name
	}
	return "most"
}

// installationValues returns the annotations of the namespace: what the injector knew in these cases from its
// configuration and its custom resources.
func installationValues(t *testing.T, folder, peer, installation string) map[string]string {
	t.Helper()
	switch peer {
	case "vault":
		return map[string]string{"vault.hashicorp.com/service": "https://vault:8200"}
	case "dapr":
		return map[string]string{"dapr.pillion.dev/trustAnchors": "ANCHORS", "dapr.pillion.dev/audience": "spiffe://sentry"}
	case "linkerd":
		return linkerdValues(t, filepath.Join(folder, peer, "deployment", "expected.yaml"))
	case "otel":
		return otelValues(installation)
	}
	return nil
}

// linkerdValues returns what an injected pod has of its installation.
func linkerdValues(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type container struct {
		Name string `json:"name"`
		Env  []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"env"`
	}
	var deployment struct {
		Spec struct {
			Template struct {
				Metadata struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
				Spec struct {
					Containers     []container `json:"containers"`
					InitContainers []container `json:"initContainers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	values := map[string]string{
		"config.linkerd.io/proxy-version":       "test-inject-proxy-version",
		"config.linkerd.io/debug-image-version": "test-inject-debug-version",
		"linkerd.pillion.dev/createdBy":         pod.Metadata.Annotations["linkerd.io/created-by"],
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, env := range c.Env {
			if c.Name == "linkerd-proxy" && env.Name == "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS" {
				values["linkerd.pillion.dev/trustAnchors"] = env.Value
			}
		}
	}
	for key, value := range values {
		if value == "" {
			t.Fatalf("%s: nothing has the value of %s", file, key)
		}
	}
	return values
}

// otelValues returns what the Instrumentation and the OpenTelemetryCollector have.
func otelValues(installation string) map[string]string {
	values := map[string]string{"otel-collector.pillion.dev/config": "{}"}
	set := func(template string, port int, propagators, sampler, argument, env string) {
		prefix := "otel-" + template + ".pillion.dev/"
		values[prefix+"endpoint"] = fmt.Sprintf("http://deployment-collector:%d", port)
		values[prefix+"propagators"] = propagators
		values[prefix+"sampler"] = sampler
		if argument != "" {
			values[prefix+"samplerArgument"] = argument
		}
		if env != "" {
			values[prefix+"env"] = env
		}
	}
	if installation == "multi" {
		const service = "OTEL_SERVICE_NAME=" // of a language in the Instrumentation
		for template, env := range map[string]string{
			"java": service + "javaapp", "nodejs": service + "nodejsapp", "python": service + "pythonapp", "dotnet": service + "dotnetapp",
			"sdk": "", "apache-httpd": service + "apache-httpd-app", "nginx": service + "nginxapp",
		} {
			port := 4317
			if template == "python" {
				port = 4318
			}
			set(template, port, "jaeger,b3", "parentbased_traceidratio", "0.85", env)
		}
		return values
	}
	const timeout, splunk, traces = "OTEL_EXPORTER_OTLP_TIMEOUT=20000", "SPLUNK_TRACE_RESPONSE_HEADER_ENABLED=true", "OTEL_TRACES_EXPORTER=otlp"
	set("java", 4318, "jaeger,b3", "always_on", "", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf,OTEL_LOGS_EXPORTER=none,"+
		"OTEL_JAVAAGENT_DEBUG=true,OTEL_INSTRUMENTATION_JDBC_ENABLED=false")
	set("nodejs", 4318, "jaeger,b3", "always_on", "", timeout+","+splunk+","+traces+",OTEL_NODEJS_DEBUG=true")
	set("python", 4318, "jaeger,b3", "always_on", "", timeout+","+splunk+
		",OTEL_LOG_LEVEL=debug,OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics")
	set("dotnet", 4318, "b3multi", "always_on", "", "OTEL_METRIC_EXPORT_INTERVAL=30000")
	set("sdk", 4317, "jaeger,b3", "parentbased_traceidratio", "0.25", splunk)
	set("apache-httpd", 4317, "jaeger,b3", "always_on", "", timeout+","+splunk+","+traces)
	set("nginx", 4317, "jaeger,b3", "always_on", "", timeout+","+splunk+","+traces)
	if installation == "nodejs-volume" {
		values["otel-nodejs.pillion.dev/volumeClaimSize"] = "1Gi"
	}
	return values
}
