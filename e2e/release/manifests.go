// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// writeManifests writes what each overlay installs into one file.
func (r *release) writeManifests() error {
	overlays, err := os.ReadDir(filepath.Join(r.root, "manifests/overlays"))
	if err != nil {
		return err
	}
	for _, overlay := range overlays {
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(r.root, "manifests/overlays", overlay.Name()))
		if err != nil {
			return err
		}
		text, err := objects.AsYaml()
		if err != nil {
			return err
		}
		// Users who apply the kustomization of the tag must get the same image.
		if n := bytes.Count(text, []byte(imageName)); n == 0 || n != bytes.Count(text, []byte(" "+r.image()+"\n")) {
			return fmt.Errorf("the overlay %s installs another image than %s; set newTag in manifests/base/kustomization.yaml", overlay.Name(), r.image())
		}
		if err := r.write("install-"+overlay.Name()+".yaml", text); err != nil {
			return err
		}
	}
	return nil
}

// writeChart packs manifests/chart, if there is one, as helm package does.
func (r *release) writeChart() error {
	dir := filepath.Join(r.root, "manifests/chart")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		r.log("without a chart, because there is no manifests/chart")
		return nil
	}
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = strings.TrimPrefix(r.version, "v"), r.version
	if chart.Metadata.Annotations == nil {
		chart.Metadata.Annotations = map[string]string{}
	}
	// What Artifact Hub shows and scans.
	chart.Metadata.Annotations["artifacthub.io/images"] = "- name: pillion\n  image: " + r.image() + "\n"
	chart.Metadata.Annotations["artifacthub.io/prerelease"] = strconv.FormatBool(semver.Prerelease(r.version) != "")
	chart.StampModTimes(r.time)
	if err := chart.Validate(); err != nil {
		return err
	}
	_, err = util.Save(chart, r.out)
	return err
}

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644) //nolint:gosec // for all users
}
