// SPDX-License-Identifier: Apache-2.0

package check_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/manifests"
)

const host = "pillion.pillion-system.svc"

var (
	now      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	allow    = "kubectl create clusterrolebinding pillion-viewer-jane --clusterrole=pillion-viewer --user=jane"
	commands = check.Commands{Kubectl: "kubectl", Pillion: func(command string) string { return "pillion " + command }}
)

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// authority returns a CA's certificate and key.
func authority(t *testing.T, seed byte) (*x509.Certificate, ed25519.PrivateKey) {
	t.Helper()
	return clitest.SignCertificate(t, seed, &x509.Certificate{
		Subject: pkix.Name{CommonName: "pillion-ca"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(9, 0, 0),
	}, nil, nil)
}

// chain is right until the certificate expires in this number of days, of 90.
func chain(t *testing.T, days int) certs.Chain {
	t.Helper()
	ca, caKey := authority(t, 1)
	leaf, key := clitest.SignCertificate(t, 2, &x509.Certificate{
		DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now.AddDate(0, 0, days-90), NotAfter: now.AddDate(0, 0, days),
	}, ca, caKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := certs.Chain{
		Now: now, Host: host, SelfManaged: true, SecretName: "pillion-system/pillion-tls",
		Secret: &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: encoded("CERTIFICATE", leaf.Raw), corev1.TLSPrivateKeyKey: encoded("PRIVATE KEY", der)}},
		Served: []certs.Endpoint{{Address: "10.0.0.2:8443", Chain: []*x509.Certificate{leaf}}, {Address: "10.0.0.3:8443", Chain: []*x509.Certificate{leaf}}},
	}
	for _, kind := range []string{"Mutating", "Validating"} {
		c.Configurations = append(c.Configurations, certs.WebhookConfiguration{
			Kind: kind + "WebhookConfiguration", Name: "pillion", Found: true,
			CABundles: []certs.CABundle{{Webhook: "pod." + strings.ToLower(kind) + ".pillion.dev", Host: host, Bundle: encoded("CERTIFICATE", ca.Raw)}},
		})
	}
	return c
}

// well are the facts about a cluster in which all is well.
func well(t *testing.T) *check.Facts {
	t.Helper()
	answer := "[+]templates ok: revision 0123456789ab, 3 in use\n[+]namespaces ok: 5\nready\n"
	return &check.Facts{
		Commands: commands, Namespace: "pillion-system", Version: "v1.36.2",
		Rights:     check.AccountRights{Checked: 42},
		Kinds:      []check.Kind{{Name: "clustersidecartemplates.pillion.dev", Found: true, Established: true}, {Name: "sidecartemplates.pillion.dev", Found: true, Established: true}},
		Chain:      chain(t, 80),
		Server:     check.Deployment{Name: "pillion", Found: true, Wanted: 2, Ready: 2, Updated: 2},
		Controller: check.Deployment{Name: "pillion-controller", Found: true, Wanted: 1, Ready: 1, Updated: 1},
		Replicas:   check.Replicas{All: []check.Replica{{Pod: "pillion-a", Answer: answer}, {Pod: "pillion-b", Answer: answer}}},
		Templates:  check.Templates{Valid: 3, Objects: []check.Template{{ID: "clustersidecartemplate/agent", Status: "True", Reason: "Valid"}}},
		Namespaces: check.Namespaces{OptedIn: []string{"shop"}},
		Probe:      check.Probe{Namespace: "shop", Requested: "agent", Expected: []string{"agent"}, Got: []string{"agent"}, Containers: []string{"agent"}},
	}
}

// wantGolden compares the report for users and for programs with the file of the case.
func wantGolden(t *testing.T, name string, r *check.Report) {
	t.Helper()
	var asJSON bytes.Buffer
	encoder := json.NewEncoder(&asJSON)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		t.Fatal(err)
	}
	golden.File(t, filepath.Join("testdata", name+".txtar"), txtar.Format(&txtar.Archive{Files: []txtar.File{
		{Name: "text", Data: []byte(r.Text(100))}, {Name: "all text", Data: []byte(r.AllText(100))}, {Name: "json", Data: asJSON.Bytes()},
	}}))
	wantFirstScreen(t, r)
	for _, c := range r.Checks {
		if said := c.Hint != "" && c.Command != ""; said != (c.Result != check.OK) {
			t.Errorf("%s is %s, the hint is %q and the command is %q", c.Name, c.Result, c.Hint, c.Command)
		}
	}
}

// wantFirstScreen checks that the first screen of a usual terminal has the verdict, the first failure and what to do about it, that the
// report names each check, and that it has each reason why something was not checked once.
func wantFirstScreen(t *testing.T, r *check.Report) {
	t.Helper()
	text := r.Text(80)
	lines := strings.SplitAfter(text, "\n")
	if screen := strings.Join(lines[:min(len(lines), 24)], ""); !strings.HasPrefix(screen, r.Summary+"\n") {
		t.Errorf("the first line is %q", lines[0])
	} else if i := slices.IndexFunc(r.Checks, func(c check.Check) bool { return c.Result == check.Failed }); i >= 0 &&
		(!strings.Contains(screen, "failed       "+r.Checks[i].Name) || !strings.Contains(screen, r.Checks[i].Command)) {
		t.Errorf("the first screen does not have the failure or its command:\n%s", screen)
	}
	words := strings.Join(strings.Fields(text), " ")
	for _, c := range r.Checks {
		if !strings.Contains(words, c.Name) {
			t.Errorf("%s is not in the report", c.Name)
		}
		if c.Result == check.NotChecked && strings.Count(words, c.Message) > 1 {
			t.Errorf("more than once: %s", c.Message)
		}
	}
	if n := strings.Count(words, check.NotAllowed) + strings.Count(words, "you lack the rights"); n > 1 {
		t.Errorf("%d times, the report is about missing rights", n)
	}
}

// TestAfter compares the report about each situation with its golden file.
func TestAfter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*testing.T, *check.Facts)
		failed bool
	}{
		"well":        {func(*testing.T, *check.Facts) {}, false},
		"old-version": {func(_ *testing.T, f *check.Facts) { f.Version = "v1.29.4-eks-123" }, true},
		"rights": {func(_ *testing.T, f *check.Facts) {
			f.Rights.Denied = map[string][]manifests.Right{
				"pillion":            {{Verb: "get", Resource: "namespaces"}, {Verb: "list", Resource: "namespaces"}, {Verb: "get", Resource: "secrets", Name: "pillion-tls", Namespace: "pillion-system"}},
				"pillion-controller": {{Verb: "patch", Group: "pillion.dev", Resource: "sidecartemplates/status"}},
			}
		}, true},
		"kinds": {func(_ *testing.T, f *check.Facts) {
			f.Kinds[0].Found, f.Kinds[1].Established, f.Kinds[1].Why = false, false, "the name is taken"
		}, true},
		"more-rights": {func(_ *testing.T, f *check.Facts) {
			f.Rights.Excess = map[string][]manifests.Right{"pillion": check.Unneeded()}
		}, false},
		"unlimited": {func(_ *testing.T, f *check.Facts) {
			for i, limited := range manifests.LimitedRights() {
				f.Rights.Unlimited = append(f.Rights.Unlimited, check.Unlimited{Limited: limited, Unknown: []string{"you are not allowed to get it", ""}[i]})
			}
		}, false},
		"no-custom-resources": {noCustomResources, false},
		"no-controller":       {func(_ *testing.T, f *check.Facts) { f.Controller = check.Deployment{Name: "pillion-controller"} }, true},
		"no-webhook": {func(_ *testing.T, f *check.Facts) {
			f.Chain.Configurations[0] = certs.WebhookConfiguration{Kind: "MutatingWebhookConfiguration", Name: "pillion"}
		}, true},
		"ca-bundle": {wrongBundle, true},
		"expires":   {func(t *testing.T, f *check.Facts) { f.Chain = chain(t, 10) }, false},
		"no-endpoint": {func(_ *testing.T, f *check.Facts) {
			f.Chain.Served, f.Chain.Deserted, f.Server.Ready = nil, "pillion-system/pillion", 0
		}, true},
		"endpoints": {func(_ *testing.T, f *check.Facts) {
			f.Chain.Served[1] = certs.Endpoint{Address: "10.0.0.3:8443", Err: errors.New("connection refused")}
		}, false},
		"far-away": {func(_ *testing.T, f *check.Facts) {
			for i := range f.Chain.Served {
				f.Chain.Served[i] = certs.Endpoint{Address: f.Chain.Served[i].Address, Err: errors.New("no answer within 3s")}
				f.Replicas.All[i] = check.Replica{Pod: f.Replicas.All[i].Pod, Unknown: "no answer through the API server within 3s"}
			}
		}, false},
		"replica": {func(_ *testing.T, f *check.Facts) { f.Server.Ready = 1 }, true},
		"rollout": {func(_ *testing.T, f *check.Facts) { f.Server.Updated = 1 }, false},
		"agreement": {func(_ *testing.T, f *check.Facts) {
			f.Replicas.All[1].Answer = "[+]templates ok: revision ba9876543210, 3 in use\nready\n"
		}, true},
		"replica-without-templates": {func(_ *testing.T, f *check.Facts) {
			f.Replicas.All[1].Answer = "[-]templates failed: the namespaces are not loaded yet\nnot ready\n"
		}, true},
		"templates": {rejectedTemplates, true},
		"unreported": {func(_ *testing.T, f *check.Facts) {
			f.Templates.Objects[0] = check.Template{ID: "clustersidecartemplate/agent"}
		}, false},
		"rollout-stopped": {stoppedRollouts, false},
		"rollout-running": {runningRollouts, false},
		"none-opted-in": {func(_ *testing.T, f *check.Facts) {
			f.Namespaces, f.Probe = check.Namespaces{Shadow: []string{"trial"}}, check.Probe{}
		}, false},
		"wrong-label": {func(_ *testing.T, f *check.Facts) { f.Namespaces.Wrong = []string{`typo ("enable")`} }, false},
		"denied": {func(_ *testing.T, f *check.Facts) {
			f.Probe.Got, f.Probe.Denied = nil, `Internal error occurred: failed calling webhook "namespace.validate.pillion.dev": x509: certificate signed by unknown authority`
		}, true},
		"denied-by-others": {func(_ *testing.T, f *check.Facts) {
			f.Probe.Got, f.Probe.Denied = nil, "pods \"x\" is forbidden: exceeded quota"
		}, false},
		"scaled-to-0": {func(_ *testing.T, f *check.Facts) {
			f.Server.Wanted, f.Server.Ready, f.Server.Updated = 0, 0, 0
			f.Chain.Served, f.Chain.Deserted = nil, "pillion-system/pillion"
			f.Replicas.All, f.Probe.Got, f.Probe.Denied = nil, nil, `Internal error occurred: failed calling webhook "namespace.validate.pillion.dev": failed to call webhook: Post "https://pillion.pillion-system.svc:443/validate?timeout=10s": no endpoints available for service "pillion"`
		}, true},
		"hung": {func(_ *testing.T, f *check.Facts) {
			f.Probe.Got, f.Probe.Denied = nil, `Internal error occurred: failed calling webhook "namespace.validate.pillion.dev": failed to call webhook: Post "https://pillion.pillion-system.svc:443/validate?timeout=10s": context deadline exceeded`
		}, true},
		"hung-and-near": {func(_ *testing.T, f *check.Facts) {
			f.Probe.Got, f.Probe.Denied = nil, `Internal error occurred: failed calling webhook "namespace.validate.pillion.dev": failed to call webhook: Post "https://pillion.pillion-system.svc:443/validate?timeout=10s": context deadline exceeded`
			for i := range f.Chain.Served {
				f.Chain.Served[i] = certs.Endpoint{Address: f.Chain.Served[i].Address, Err: errors.New("no answer within 3s")}
			}
		}, true},
		"timeout": {func(_ *testing.T, f *check.Facts) {
			f.Probe.Got, f.Probe.Timeout = nil, "there is no answer within 4s, and a pod that skips Pillion's webhooks is accepted within 2s"
		}, true},
		"unknown-templates": {func(_ *testing.T, f *check.Facts) {
			f.Templates = check.Templates{Unknown: "You are not allowed to read Pillion's templates and settings.", Allow: allow}
			f.Probe.Requested, f.Probe.Expected, f.Probe.Got = "", nil, nil
		}, false},
		"may-not-create": {func(_ *testing.T, f *check.Facts) {
			f.Probe = check.Probe{Namespace: "shop", Unknown: "you are not allowed to create pods in the namespace shop, even for a dry run", NoRight: true}
			for i := range f.Replicas.All {
				f.Replicas.All[i] = check.Replica{Pod: f.Replicas.All[i].Pod, Unknown: "you are not allowed to get pods/proxy in the namespace pillion-system"}
			}
		}, false},
		"denied-to-others": {func(_ *testing.T, f *check.Facts) {
			f.Probe = check.Probe{
				Namespace: "shop", Of: "Deployment/api",
				Denied: `Internal error occurred: failed calling webhook "namespace.validate.pillion.dev": failed to call webhook: Post "https://pillion.pillion-system.svc:443/validate?timeout=10s": dial tcp 10.96.0.7:443: connect: connection refused`,
			}
			for i := range f.Chain.Served {
				f.Chain.Served[i] = certs.Endpoint{Address: f.Chain.Served[i].Address, Err: errors.New("connection refused")}
			}
		}, true},
		"kinds-or-component": {func(_ *testing.T, f *check.Facts) {
			for i := range f.Kinds {
				f.Kinds[i] = check.Kind{Name: f.Kinds[i].Name}
			}
			f.Controller = check.Deployment{Name: "pillion-controller", Unknown: "you are not allowed to get deployments in the namespace pillion-system"}
		}, false},
		"denied-by-policy": {func(_ *testing.T, f *check.Facts) {
			f.Probe.Got, f.Probe.Denied = nil, `pods "pillion-check-x" is forbidden: ValidatingAdmissionPolicy 'team-b-images' with binding 'team-b-images' denied request: images must come from registry.example`
		}, false},
		"no-such-namespace": {func(_ *testing.T, f *check.Facts) { f.Probe = check.Probe{Namespace: "shpo", Missing: true} }, true},
		"nothing-answers": {func(_ *testing.T, f *check.Facts) {
			const why = check.Unanswered + "within 1m0s"
			f.ChainUnknown, f.Chain = why, certs.Chain{}
			f.Server, f.Controller, f.Kinds = check.Deployment{Name: "pillion", Unknown: why}, check.Deployment{Name: "pillion-controller", Unknown: why}, []check.Kind{{Unknown: why}}
			f.Rights, f.Replicas, f.Templates = check.AccountRights{Unknown: why}, check.Replicas{Unknown: why}, check.Templates{Unknown: why}
			f.Namespaces, f.Probe = check.Namespaces{Unknown: why}, check.Probe{Unknown: why}
		}, false},
		"not-injected": {func(_ *testing.T, f *check.Facts) { f.Probe.Got, f.Probe.Containers = nil, nil }, true},
		"parameters":   {func(_ *testing.T, f *check.Facts) { f.Probe = check.Probe{Namespace: "shop"} }, false},
		"not-installed": {func(_ *testing.T, f *check.Facts) {
			*f = check.Facts{Commands: commands, Namespace: f.Namespace, Version: f.Version}
		}, true},
		"outside": {func(_ *testing.T, f *check.Facts) {
			f.Chain.Outside, f.Server = true, check.Deployment{Name: "pillion"}
		}, false},
		"no-rights": {noRights, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := well(t)
			test.change(t, f)
			r := check.After(f)
			wantGolden(t, name, r)
			if r.Failed() != test.failed {
				t.Errorf("failed is %t, want %t", r.Failed(), test.failed)
			}
		})
	}
}

func noCustomResources(_ *testing.T, f *check.Facts) {
	for i := range f.Kinds {
		f.Kinds[i] = check.Kind{Name: f.Kinds[i].Name}
	}
	f.Controller, f.Templates.Objects = check.Deployment{Name: "pillion-controller"}, nil
}

func wrongBundle(t *testing.T, f *check.Facts) {
	t.Helper()
	ca, _ := authority(t, 3)
	f.Chain.Configurations[0].CABundles[0].Bundle = encoded("CERTIFICATE", ca.Raw)
}

func rejectedTemplates(_ *testing.T, f *check.Facts) {
	f.Templates.Objects = append(f.Templates.Objects,
		check.Template{ID: "sidecartemplate/team-a/agent", Status: "False", Reason: "NameTaken", Message: "The ClusterSidecarTemplate agent takes precedence, so no pod gets this template."},
		check.Template{ID: "clustersidecartemplate/bad", Status: "False", Reason: "Invalid", Message: "This template is invalid, so no pod gets this template. Fix it: line 3"})
	f.Templates.Problems = []string{
		"A template is invalid, so this report ignores it. Pillion may still use its last valid content: clustersidecartemplate/bad:3: wrong.",
		"A template is invalid, so this report ignores it. Pillion may still use its last valid content: configmap/pillion-templates/x.yaml:1: wrong.",
	}
}

func stoppedRollouts(_ *testing.T, f *check.Facts) {
	f.Templates.Running = 1
	f.Templates.Stopped = []string{"The automatic rollout of clustersidecartemplate/log-agent has stopped: pod web-1 in the namespace shop: it crashes. To continue, change the template, or fix or delete the pod."}
}

func runningRollouts(_ *testing.T, f *check.Facts) { f.Templates.Running = 2 }

func noRights(_ *testing.T, f *check.Facts) {
	f.Version = ""
	f.Rights.Unknown = "you are not allowed to create subjectaccessreviews"
	f.Kinds = []check.Kind{{Name: f.Kinds[0].Name, Unknown: "you are not allowed to get customresourcedefinitions"}}
	f.Chain = certs.Chain{Now: now, Host: host, SecretName: "pillion-system/pillion-tls", Unread: []string{"the Secret pillion-system/pillion-tls is not shown, because you are not allowed to read it"}, Configurations: []certs.WebhookConfiguration{{Kind: "MutatingWebhookConfiguration", Name: "pillion", Unread: true}}}
	f.Server = check.Deployment{Name: "pillion", Unknown: "you are not allowed to get deployments in the namespace pillion-system"}
	f.Controller = check.Deployment{Name: "pillion-controller", Unknown: f.Server.Unknown}
	f.Replicas = check.Replicas{Unknown: "you are not allowed to list pods in the namespace pillion-system"}
	f.Templates = check.Templates{Unknown: "You are not allowed to read Pillion's templates and settings.", Allow: allow}
	f.Namespaces = check.Namespaces{Unknown: "you are not allowed to list namespaces"}
	f.Probe = check.Probe{}
}

// TestBefore compares the report about each situation before the installation with its golden file.
func TestBefore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*check.PreFacts)
		failed bool
	}{
		"empty":           {func(*check.PreFacts) {}, false},
		"newer":           {func(f *check.PreFacts) { f.Version = "v1.38.0-alpha.1" }, false},
		"self-signed":     {func(f *check.PreFacts) { f.Overlay, f.CertManager = manifests.OverlaySelfSigned, false }, false},
		"no-cert-manager": {func(f *check.PreFacts) { f.CertManager = false }, true},
		"no-sidecars":     {func(f *check.PreFacts) { f.Version, f.Sidecars.Supported = "v1.28.0", false }, true},
		"lacking": {func(f *check.PreFacts) {
			f.Denied = []manifests.Right{{Verb: "create", Resource: "namespaces", Name: "pillion-system"}, {Verb: "patch", Resource: "namespaces", Name: "pillion-system"}}
		}, true},
		"installed": {func(f *check.PreFacts) {
			f.Others.All = []check.Other{{Title: "MutatingWebhookConfiguration/pillion", Own: true, Namespace: "pillion-system"}}
		}, false},
		"elsewhere": {func(f *check.PreFacts) {
			f.Others.All = []check.Other{{Title: "MutatingWebhookConfiguration/pillion", Own: true, Namespace: "other"}, {Title: "ValidatingWebhookConfiguration/mine"}}
		}, true},
		"renamed": {func(f *check.PreFacts) {
			f.Others.All = []check.Other{{Title: "MutatingWebhookConfiguration/mine", Namespace: "pillion-system"}}
		}, true},
		"nobody": {func(f *check.PreFacts) {
			f.Version, f.NoRights = "", "you are not allowed to create selfsubjectaccessreviews"
			f.Sidecars = check.Sidecars{Unknown: "you are not allowed to create pods in the namespace default, even for a dry run"}
			f.Others.Unknown = "you are not allowed to list mutatingwebhookconfigurations"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &check.PreFacts{
				Commands: commands, Namespace: "pillion-system", Overlay: manifests.OverlayCertManager, Version: "v1.36.2",
				Sidecars: check.Sidecars{Supported: true}, Rights: 80, CertManager: true,
			}
			test.change(f)
			r := check.Before(f)
			wantGolden(t, "pre-"+name, r)
			if r.Failed() != test.failed {
				t.Errorf("failed is %t, want %t", r.Failed(), test.failed)
			}
		})
	}
}

// TestBriefNames checks that a message lists ten namespaces at most.
func TestBriefNames(t *testing.T) {
	t.Parallel()
	f := well(t)
	f.Namespaces.OptedIn = strings.Split("abcdefghijklm", "")
	const want = "opted in: a, b, c, d, e, f, g, h, i, j and 3 more"
	for _, c := range check.After(f).Checks {
		if c.Name == "namespaces" && c.Message != want {
			t.Errorf("the message is %q, want %q", c.Message, want)
		}
	}
}
