// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long a test waits for an event.
const patience = 20 * time.Second

// watch starts watchFiles and returns a function that waits for a call of changed
// after which the condition holds.
func watch(t *testing.T, paths ...string) (until func(what string, holds func() bool)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	calls := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() { done <- watchFiles(ctx, paths, func() { calls <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watchFiles: %v", err)
		}
	})
	until = func(what string, holds func() bool) {
		t.Helper()
		limit := time.After(patience)
		for {
			select {
			case <-calls:
				if holds() {
					return
				}
			case <-limit:
				t.Fatalf("not told: %s", what)
			}
		}
	}
	until("the watch stands", func() bool { return true })
	return until
}

func contentForPods(path, want string) func() bool {
	return func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == want
	}
}

func gone(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatchFolder checks that files that are written, added and removed in a folder are noticed.
func TestWatchFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "templates")
	file := filepath.Join(dir, "a.yaml")
	write(t, file, "1")
	until := watch(t, dir)
	write(t, file, "2")
	until("a file was written", contentForPods(file, "2"))
	write(t, filepath.Join(dir, "b.yaml"), "1")
	until("a file was added", contentForPods(filepath.Join(dir, "b.yaml"), "1"))
	must(t, os.Remove(file))
	until("a file was removed", gone(file))
}

// TestWatchEditor checks that files are noticed that are replaced by renaming, as editors do.
func TestWatchEditor(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, "1")
	for name, path := range map[string]string{"folder": dir, "file": file} {
		t.Run(name, func(t *testing.T) {
			until := watch(t, path)
			for _, text := range []string{"2", "3"} { // the second one needs the watch of the new file
				write(t, file+".swp", text)
				must(t, os.Rename(file+".swp", file))
				until("a file was renamed over it", contentForPods(file, text))
			}
			must(t, os.Rename(file, file+"~"))
			write(t, file, "4")
			until("the file was moved away and written anew", contentForPods(file, "4"))
			write(t, file, "5")
			until("and written again", contentForPods(file, "5"))
		})
	}
}

// mount writes a ConfigMap as a kubelet does, and replaces its content.
func mount(t *testing.T, dir, version, text string) {
	t.Helper()
	write(t, filepath.Join(dir, version, "a.yaml"), text)
	must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if old == "" {
		must(t, os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(dir, "a.yaml")))
	} else {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

// TestWatchConfigMap checks that files of a mounted ConfigMap are noticed, which the kubelet replaces through a link.
func TestWatchConfigMap(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mount")
	file := filepath.Join(dir, "a.yaml")
	mount(t, dir, "..1", "1")
	last := "1"
	for name, path := range map[string]string{"folder": dir, "file": file} {
		t.Run(name, func(t *testing.T) {
			until := watch(t, path)
			for range 2 {
				last += "+"
				mount(t, dir, ".."+last, last)
				until("the link was swapped", contentForPods(file, last))
			}
		})
	}
}

// TestWatchSwappedFolder checks that a link to a folder that leads to another folder is noticed, and that the new folder is watched.
func TestWatchSwappedFolder(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "v1", "a.yaml"), "1")
	write(t, filepath.Join(root, "v2", "a.yaml"), "2")
	link := filepath.Join(root, "current")
	must(t, os.Symlink("v1", link))
	until := watch(t, link)
	must(t, os.Symlink("v2", link+"_new"))
	must(t, os.Rename(link+"_new", link))
	until("the folder's link was swapped", contentForPods(filepath.Join(link, "a.yaml"), "2"))
	write(t, filepath.Join(link, "a.yaml"), "3")
	until("the new folder is watched", contentForPods(filepath.Join(link, "a.yaml"), "3"))
}

// TestWatchGoneAndBack checks that folders that are removed and made again are noticed, also parents of the watched one.
func TestWatchGoneAndBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "templates")
	file := filepath.Join(dir, "a.yaml")
	write(t, file, "1")
	for name, path := range map[string]string{"folder": dir, "file": file} {
		t.Run(name, func(t *testing.T) {
			until := watch(t, path)
			for _, away := range []string{dir, filepath.Dir(filepath.Dir(dir))} {
				must(t, os.RemoveAll(away))
				until("the folder is gone", gone(dir))
				write(t, file, "2")
				until("the folder is back", contentForPods(file, "2"))
				write(t, file, "3")
				until("the new folder is watched", contentForPods(file, "3"))
			}
			must(t, os.Rename(dir, dir+".old"))
			until("the folder was moved away", gone(dir))
			must(t, os.Rename(dir+".old", dir))
			until("the folder was moved back", contentForPods(file, "3"))
			write(t, file, "4")
			until("the moved folder is watched", contentForPods(file, "4"))
		})
	}
}

// TestWatchSettles checks that many changes in a short time cause few calls, and that the last change causes one.
func TestWatchSettles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, "0")
	told := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = watchFiles(ctx, []string{dir}, func() { told <- struct{}{} }) }()
	<-told
	const burst = 200
	for range burst {
		write(t, file, "x")
	}
	write(t, file, "last")
	<-told
	if n := len(told); n > burst/10 {
		t.Errorf("%d changes in a burst were told %d times", burst, n)
	}
}

// TestWatchLeavesOthersAlone checks that other files in the folder of a watched file cause no call.
func TestWatchLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, "1")
	calls := 0
	until := watch(t, file)
	write(t, filepath.Join(dir, "other.txt"), "1")
	write(t, file, "2")
	until("the file was written", func() bool { calls++; return contentForPods(file, "2")() })
	if calls != 1 {
		t.Errorf("told %d times", calls)
	}
}
