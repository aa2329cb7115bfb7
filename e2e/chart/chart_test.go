// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	manifests = "../../manifests"
	chartDir  = manifests + "/chart"
	system    = "pillion-system"
)

// TestMain drops Helm's log, which has a line for each link in the chart.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// template does the same as "helm template".
func template(namespace, values string) (*release.Release, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	given := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, err
	}
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, "pillion", namespace
	install.KubeVersion = &common.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	made, err := install.Run(chart, given)
	if err != nil {
		return nil, err
	}
	return made.(*release.Release), nil
}

func mustTemplate(t *testing.T, namespace, values string) *release.Release {
	t.Helper()
	made, err := template(namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// set is objects by their kind and name.
type set map[string]*unstructured.Unstructured

// objects decodes a YAML stream.
func objects(t *testing.T, stream string) set {
	t.Helper()
	all := set{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(stream)))
	for {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(doc, &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		if len(object.Object) == 0 {
			continue // a comment
		}
		id := object.GetKind() + "/" + object.GetName()
		if all[id] != nil {
			t.Fatalf("%s is there twice", id)
		}
		all[id] = object
	}
}

// kustomize builds a kustomization, in which MANIFESTS stands for that folder.
func kustomize(t *testing.T, text string, files map[string]string) set {
	t.Helper()
	disk, dir := filesys.MakeFsOnDisk(), t.TempDir()
	absolute, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, absolute)
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "MANIFESTS", relative)
	if err := disk.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := disk.WriteFile(filepath.Join(dir, name), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(stream))
}
