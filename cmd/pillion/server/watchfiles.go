// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle    = 100 * time.Millisecond // a burst of events is one change
	settleMax = time.Second            // report an endless burst after this time
)

// dataLink is the link that a kubelet replaces to update all files of a mounted ConfigMap at once.
// The files beside it are links through it.
const dataLink = "..data"

// watchFiles calls changed whenever the files or folders may have changed, until ctx is done. Then it
// returns nil. It also calls changed once when the watch is set up, so that no change between
// loading and watching is missed.
//
// A path may be missing for a while, and so may its parent folders. watchFiles never makes two calls of
// changed at the same time. An error while watching, for example lost events, counts as a change.
// watchFiles returns an error only if watching is not possible at all. On Linux, the cause is a limit of
// inotify.
func watchFiles(ctx context.Context, paths []string, changed func()) error {
	w, err := newFileWatcher(paths)
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	defer w.notify.Close()
	changed()
	var timer <-chan time.Time
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer:
			timer = nil
			if err := w.watchPaths(); err != nil {
				return fmt.Errorf("watching files: %w", err)
			}
			changed()
			continue
		case event, open := <-w.notify.Events:
			if !open {
				return errors.New("watching files: the watcher closed")
			}
			if !w.affectsPath(filepath.Clean(event.Name)) {
				continue
			}
		case <-w.notify.Errors: //nolint:errcheck // events were lost, which counts as a change
		}
		if timer == nil {
			first = time.Now()
		}
		timer = time.After(min(settle, time.Until(first.Add(settleMax))))
	}
}

type fileWatcher struct {
	notify *fsnotify.Watcher
	paths  []string
}

func newFileWatcher(paths []string) (*fileWatcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &fileWatcher{notify: notify}
	for _, p := range paths {
		w.paths = append(w.paths, filepath.Clean(p))
	}
	if err := w.watchPaths(); err != nil {
		notify.Close()
		return nil, err
	}
	return w, nil
}

// watchPaths watches every existing path and its folder, or the nearest existing folder above it. Calling
// it again follows paths that were replaced.
func (w *fileWatcher) watchPaths() error {
	for _, path := range w.paths {
		_ = w.notify.Add(path) // may be missing; its folder reports when it is back
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			err := w.notify.Add(dir)
			if err == nil {
				break
			}
			if dir == filepath.Dir(dir) {
				return err
			}
		}
	}
	return nil
}

// affectsPath reports whether an event for that name can change the content of a path. The name may be
// the path itself, something in it, the link through which its folder is read, or a folder above
// it.
func (w *fileWatcher) affectsPath(name string) bool {
	dir := filepath.Dir(name)
	for _, path := range w.paths {
		if name == path || dir == path ||
			filepath.Base(name) == dataLink && dir == filepath.Dir(path) ||
			strings.HasPrefix(path, name+string(filepath.Separator)) {
			return true
		}
	}
	return false
}
