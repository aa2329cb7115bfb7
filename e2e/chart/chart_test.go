// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
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

// rendered is what Helm makes of the chart.
type rendered struct{ Manifest, Notes string }

// renderChart does the same as "helm template" for a chart without hooks. It uses the parts of Helm that render: the package
// that installs depends on twice as much, and a new machine compiles that for minutes.
func renderChart(namespace, values string) (*rendered, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	given := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = common.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: "pillion", Namespace: namespace, Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	made := &rendered{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch base := path.Base(name); {
		case base == "NOTES.txt":
			made.Notes = files[name]
		case !strings.HasPrefix(base, "_"):
			made.Manifest += "---\n" + files[name] + "\n"
		}
	}
	return made, nil
}

func mustRenderChart(t *testing.T, namespace, values string) *rendered {
	t.Helper()
	made, err := renderChart(namespace, values)
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
	disk := filesys.MakeFsOnDisk()
	dir, err := filepath.EvalSymlinks(t.TempDir()) // kustomize follows them
	if err != nil {
		t.Fatal(err)
	}
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
