// SPDX-License-Identifier: Apache-2.0

package templates

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
	settleMax = time.Second            // and one without an end is told all the same
)

// dataLink is the link that a kubelet swaps to give a mounted ConfigMap its new
// content all at once; the files beside it are links through it.
const dataLink = "..data"

// Watch calls changed whenever the files or folders may have changed, until ctx
// is done; then it returns nil. It calls changed once at the beginning too, when
// the watch stands: what happened between loading and watching is not missed.
//
// A path may be gone for a while, and so may the folders it is in. Changed is
// never called twice at the same time. What goes wrong while watching (events
// were lost) counts as a change; an error is returned only when watching is not
// possible at all, which on Linux is a limit of inotify.
func Watch(ctx context.Context, paths []string, changed func()) error {
	w, err := newWatcher(paths)
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
			if err := w.arm(); err != nil {
				return fmt.Errorf("watching files: %w", err)
			}
			changed()
			continue
		case event, open := <-w.notify.Events:
			if !open {
				return errors.New("watching files: the watcher closed")
			}
			if !w.concerns(filepath.Clean(event.Name)) {
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

type watcher struct {
	notify *fsnotify.Watcher
	paths  []string
}

func newWatcher(paths []string) (*watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watcher{notify: notify}
	for _, p := range paths {
		w.paths = append(w.paths, filepath.Clean(p))
	}
	if err := w.arm(); err != nil {
		notify.Close()
		return nil, err
	}
	return w, nil
}

// arm watches every path, if it is there, and the folder it is in, or the
// nearest one above that is there. Doing it again follows what was replaced.
func (w *watcher) arm() error {
	for _, path := range w.paths {
		_ = w.notify.Add(path) // may be gone; its folder tells when it is back
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

// concerns says whether an event of that name can change what a path holds: the
// path itself, something in it, the link that its folder is read through, or a
// folder above it.
func (w *watcher) concerns(name string) bool {
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
