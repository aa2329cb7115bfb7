// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// project writes the files of a Secret or ConfigMap into dir as the kubelet does: a link for
// each key, through ..data, which changes atomically. Unlike the kubelet, which takes up to
// two minutes, it does so at once. The files of a deleted object stay. It ends when ctx is
// done.
func (c *Cluster) project(ctx context.Context, resource string, object runtime.Object, name, dir string) (failed <-chan error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	errs := make(chan error, 1)
	publish := func(object any) {
		data, err := dataOf(object)
		if err == nil {
			err = publish(dir, data)
		}
		if err != nil {
			select {
			case errs <- fmt.Errorf("project %s %s: %w", resource, name, err):
			default:
			}
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.Client.CoreV1().RESTClient(), resource, c.Namespace,
			fields.OneTermEqualSelector("metadata.name", name)),
		ObjectType: object,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    publish,
			UpdateFunc: func(_, object any) { publish(object) },
		},
	})
	go controller.RunWithContext(ctx)
	return errs, nil
}

func dataOf(object any) (map[string][]byte, error) {
	switch o := object.(type) {
	case *corev1.Secret:
		return o.Data, nil
	case *corev1.ConfigMap:
		data := maps.Clone(o.BinaryData)
		for key, text := range o.Data {
			if data == nil {
				data = map[string][]byte{}
			}
			data[key] = []byte(text)
		}
		return data, nil
	}
	return nil, fmt.Errorf("%T holds no files", object)
}

// publish replaces all files atomically.
func publish(dir string, data map[string][]byte) error {
	version, err := os.MkdirTemp(dir, "..version-")
	if err != nil {
		return err
	}
	for key, value := range data {
		if err := os.WriteFile(filepath.Join(version, key), value, 0o600); err != nil {
			return err
		}
	}
	before, _ := os.Readlink(filepath.Join(dir, "..data"))
	if before == "" { // a container may start as soon as ..data exists
		if err := linkKeys(dir, data); err != nil {
			return err
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), link); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		return err
	}
	if err := linkKeys(dir, data); err != nil {
		return err
	}
	if err := dropGone(dir, data); err != nil || before == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, before))
}

func linkKeys(dir string, data map[string][]byte) error {
	for key := range data {
		if err := os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func dropGone(dir string, data map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := data[e.Name()]; ok || e.Name()[0] == '.' {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
