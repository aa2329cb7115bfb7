// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calledAtAnotherPort checks that API servers call the port that the webhook configurations name. First the
// Service lacks this port and calls fail. Then it has only this port, as the page about configuration
// describes.
func (i *installed) calledAtAnotherPort(t *testing.T) {
	for _, kind := range []string{"mutating", "validating"} {
		const patch = `[{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": 8443}]`
		if _, err := i.RunKubectl(testContext(t), nil, "patch", kind+"webhookconfiguration", pillionConfiguration, "--type=json", "-p", patch); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "nobody is called at port 443", func(ctx context.Context) error {
		pod := shopPod()
		pod.Name = "nobody"
		_, err := i.Client.CoreV1().Pods(i.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "no service port 8443 found") {
			return fmt.Errorf("the error is %v", err) //nolint:errorlint // it may be nil
		}
		return nil
	})
	dir := kustomization(t, "overlays/self-signed", i.components...)
	file, err := os.OpenFile(filepath.Join(dir, "kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(pageBlock(t, "manifests/docs/configure.md", "path: /spec/ports/0/port"))
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := i.RunKubectl(testContext(t), nil, "apply", "--server-side", "--validate=strict", "-k", dir); err != nil {
		t.Fatal(err)
	}
	service, err := i.Client.CoreV1().Services(pillionNamespace).Get(testContext(t), "pillion", metav1.GetOptions{})
	if err != nil || len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != 8443 {
		t.Fatalf("the Service has the ports %v, %v; want 8443", service.Spec.Ports, err)
	}
	i.waitForInjection(t)
	if problems := i.certs(t).Problems; len(problems) > 0 {
		t.Errorf("problems are %q", problems)
	}
}
