// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// once returns the cache's folder of that name. If there is none, build fills a new one, in the only
// process that does, and it gets its name when everything is in it.
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
	if complete(dir) { // by whoever held the lock before
		return dir, nil
	}
	return dir, steps.Follow(what, func(progress *Progress) error {
		progress.publish = held.publish
		return buildAside(dir, func(dir string) error { return build(dir, progress) })
	})
}

func cacheRoot() (string, error) {
	root := os.Getenv("PILLION_CACHE")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder, set PILLION_CACHE: %w", err)
		}
		root = filepath.Join(user, "pillion")
	}
	return root, os.MkdirAll(root, 0o755)
}

// complete needs no look inside: the folder gets its name when everything is in it.
func complete(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// buildAside fills a folder beside dir and then moves it there, so that dir is all or nothing.
func buildAside(dir string, build func(dir string) error) error {
	leftovers, _ := filepath.Glob(dir + ".building-*")
	for _, old := range leftovers { // of a build that was killed; whoever holds the lock is the only one here
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
