// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/manifests"
)

const certManagerOverlay = "overlays/cert-manager"

// decodeAll decodes the documents of a file strictly, in their order.
func decodeAll(t *testing.T, path string, into ...any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != len(into) {
		t.Fatalf("%s has %d documents, want %d", path, len(documents), len(into))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict(document, into[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// TestCertManagerChain checks that the chain leads from an issuer that signs itself to the Secret
// that the Deployment mounts.
func TestCertManagerChain(t *testing.T) {
	var root, issuer certmanagerv1.Issuer
	var authority, serving certmanagerv1.Certificate
	decodeAll(t, filepath.Join(certManagerOverlay, "issuers.yaml"), &root, &authority, &issuer)
	decodeAll(t, filepath.Join(certManagerOverlay, "certificate.yaml"), &serving)
	for _, object := range []metav1.Object{&root, &authority, &issuer, &serving} {
		if object.GetNamespace() != manifests.Namespace || object.GetLabels()["app.kubernetes.io/name"] != manifests.Name {
			t.Errorf("%s is in namespace %q with labels %v", object.GetName(), object.GetNamespace(), object.GetLabels())
		}
	}
	issuedBy := func(c certmanagerv1.Certificate, i certmanagerv1.Issuer) {
		want := cmmeta.IssuerReference{Group: "cert-manager.io", Kind: "Issuer", Name: i.Name}
		if c.Spec.IssuerRef != want {
			t.Errorf("%s is issued by %v, want %v", c.Name, c.Spec.IssuerRef, want)
		}
		if k := c.Spec.PrivateKey; k == nil || k.Algorithm != certmanagerv1.ECDSAKeyAlgorithm || k.Size != 256 {
			t.Errorf("the key of %s is %v", c.Name, k)
		}
	}
	issuedBy(authority, root)
	issuedBy(serving, issuer)
	if root.Spec.SelfSigned == nil || issuer.Spec.CA == nil || issuer.Spec.CA.SecretName != authority.Spec.SecretName {
		t.Errorf("issuers are %v and %v", root.Spec, issuer.Spec)
	}
	if !authority.Spec.IsCA || authority.Spec.CommonName == "" || authority.Spec.Duration.Duration != 10*365*24*time.Hour {
		t.Errorf("the CA is %v", authority.Spec)
	}
	if authority.Spec.RenewBefore.Duration < serving.Spec.Duration.Duration {
		t.Error("a serving certificate may outlive the CA that signed it")
	}
	const day = 24 * time.Hour
	if serving.Spec.Duration.Duration != 90*day || serving.Spec.RenewBefore.Duration != 30*day || authority.Spec.RenewBefore.Duration != 180*day {
		t.Errorf("renewed are %v and %v", serving.Spec, authority.Spec)
	}
	if authority.Spec.PrivateKey.RotationPolicy != certmanagerv1.RotationPolicyNever {
		t.Error("a renewal of the CA changes its key")
	}
}

// TestCertManagerServing checks that the Secret of cert-manager's certificate is the one that the Deployment mounts.
func TestCertManagerServing(t *testing.T) {
	b := load(t)
	var serving certmanagerv1.Certificate
	decodeAll(t, filepath.Join(certManagerOverlay, "certificate.yaml"), &serving)
	if serving.Spec.SecretName != manifests.TLSSecret {
		t.Errorf("the Secret is %q, want %q", serving.Spec.SecretName, manifests.TLSSecret)
	}
	mounted := false
	for _, v := range b.deployment.Spec.Template.Spec.Volumes {
		mounted = mounted || v.Secret != nil && v.Secret.SecretName == serving.Spec.SecretName
	}
	if !mounted {
		t.Errorf("the Deployment does not mount %s", serving.Spec.SecretName)
	}
	if names := serving.Spec.DNSNames; len(names) == 0 || names[0] != manifests.ServiceHost {
		t.Errorf("dnsNames are %q, want %q first", names, manifests.ServiceHost)
	}
	if want := []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageDigitalSignature}; !slices.Equal(serving.Spec.Usages, want) {
		t.Errorf("usages are %q", serving.Spec.Usages)
	}
}

// TestCertManagerInjects checks that both webhook configurations get their caBundle from the
// serving Certificate, and from nowhere else.
func TestCertManagerInjects(t *testing.T) {
	var serving certmanagerv1.Certificate
	decodeAll(t, filepath.Join(certManagerOverlay, "certificate.yaml"), &serving)
	var k struct {
		metav1.TypeMeta `json:",inline"`
		Resources       []string `json:"resources"`
		Patches         []struct {
			Target map[string]string `json:"target"`
			Patch  string            `json:"patch"`
		} `json:"patches"`
	}
	decodeAll(t, filepath.Join(certManagerOverlay, "kustomization.yaml"), &k)
	if want := []string{"../../base", "issuers.yaml", "certificate.yaml"}; !slices.Equal(k.Resources, want) {
		t.Errorf("resources are %q", k.Resources)
	}
	var patch []struct {
		Op, Path string
		Value    any
	}
	from := serving.Namespace + "/" + serving.Name
	injected := false
	for _, p := range k.Patches {
		if err := yaml.UnmarshalStrict([]byte(p.Patch), &patch); err != nil {
			t.Fatal(err)
		}
		for _, op := range patch {
			value, _ := op.Value.(map[string]any)
			both := len(p.Target) == 2 && p.Target["group"] == admissionregistrationv1.GroupName && p.Target["name"] == manifests.Name
			injected = injected || both && op.Path == "/metadata/annotations" && value[certmanagerv1.WantInjectAnnotation] == from
		}
	}
	if !injected {
		t.Errorf("no patch gives both configurations %s: %s", certmanagerv1.WantInjectAnnotation, from)
	}
}

// TestNoBundles checks that if a user applies a manifest with a caBundle, it conflicts with the
// controllers that maintain the caBundle.
func TestNoBundles(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "caBundle:") {
				t.Errorf("%s has a caBundle", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeepCABundle checks that the policy applies to the shipped configurations and nothing else.
func TestKeepCABundle(t *testing.T) {
	var policy admissionregistrationv1.MutatingAdmissionPolicy
	var binding admissionregistrationv1.MutatingAdmissionPolicyBinding
	var advise admissionregistrationv1.ValidatingWebhookConfiguration
	decodeAll(t, "components/keep-ca-bundle/policy.yaml", &policy, &binding)
	decodeAll(t, "advise/validatingwebhookconfiguration.yaml", &advise)
	b := load(t)
	rules := policy.Spec.MatchConstraints.ResourceRules
	if len(rules) != 1 || !slices.Equal(rules[0].ResourceNames, []string{b.mutating.Name, advise.Name}) || b.mutating.Name != b.validating.Name {
		t.Errorf("the policy is for %v", rules)
	}
	if binding.Spec.PolicyName != policy.Name || binding.Spec.MatchResources != nil {
		t.Errorf("the binding is %v", binding.Spec)
	}
}
