// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// once returns the folder with this name in the cache. If it is missing, build fills a new
// folder, in one process at a time. The folder gets its name when it is complete.
func once(ctx context.Context, steps *Steps, name, what string, build func(dir string, progress *Progress) error) (string, error) {
	root, err := cacheRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if complete(dir) {
		return dir, nil
	}
	held, err := acquire(ctx, dir+".lock", steps)
	if err != nil {
		return "", err
	}
	defer held.release()
	if complete(dir) { // another process built it
		return dir, nil
	}
	return dir, steps.Follow(what, func(progress *Progress) error {
		progress.publish = held.publish
		return buildAside(dir, func(dir string) error { return build(dir, progress) })
	})
}

func cacheRoot() (string, error) {
	root := os.Getenv("E2E_CACHE")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder, set E2E_CACHE: %w", err)
		}
		root = filepath.Join(user, "pillion")
	}
	return root, os.MkdirAll(root, 0o755)
}

// complete checks only for the folder, which gets its name when it is complete.
func complete(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// buildAside fills a folder beside dir and then moves it to dir, so that dir is never
// incomplete.
func buildAside(dir string, build func(dir string) error) error {
	leftovers, _ := filepath.Glob(dir + ".building-*")
	for _, old := range leftovers { // from killed builds; this process holds the lock, so it is the only builder
		_ = os.RemoveAll(old)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := build(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}
