// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const lockEvery = 200 * time.Millisecond

// owner is the content of a lock's file, for processes that wait.
type owner struct {
	PID      int       `json:"pid"`
	User     string    `json:"user"`
	Command  string    `json:"command"`
	Folder   string    `json:"folder"`
	Since    time.Time `json:"since"`
	Progress string    `json:"progress,omitempty"`
}

func (o owner) String() string {
	return fmt.Sprintf("%s in %s, process %d of %s, since %s", o.Command, o.Folder, o.PID, o.User, o.Since.Local().Format(time.TimeOnly))
}

// self describes this process. It replaces the temporary paths of go run and go test, which
// mean nothing to users.
func self() owner {
	o := owner{PID: os.Getpid(), User: "user " + fmt.Sprint(os.Getuid()), Since: time.Now().UTC().Round(time.Second)}
	if u, err := user.Current(); err == nil {
		o.User = u.Username
	}
	name := filepath.Base(os.Args[0])
	switch {
	case strings.HasSuffix(name, ".test"):
		o.Command = "go test"
	case name == "binaries" && len(os.Args) > 1:
		o.Command = "make demo"
	case name == "binaries":
		o.Command = "make test"
	default:
		o.Command = name
	}
	folder, err := os.Getwd()
	if err != nil {
		folder = "an unknown folder"
	}
	if filepath.Base(folder) == "e2e" {
		folder = filepath.Dir(folder)
	}
	o.Folder = Brief(folder)
	return o
}

// Brief returns a path below the user's home with ~.
func Brief(path string) string {
	home, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, home+"/"); err == nil && home != "/" && ok {
		return "~/" + rest
	}
	return path
}

// lock is held until it is released or the process ends: then the kernel releases it.
type lock struct {
	file *os.File

	mu    sync.Mutex
	owner owner
}

// acquire waits until this process holds the lock, and meanwhile shows which process does.
func acquire(ctx context.Context, path string, steps *Steps) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the cache cannot be written, set E2E_CACHE to a folder of your own: %w", err)
	}
	held := &lock{file: f, owner: self()}
	err = held.try()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = steps.Follow("waiting for another build", func(progress *Progress) error { return held.wait(ctx, steps, progress) })
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	held.publish("")
	return held, nil
}

func (l *lock) try() error { return syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

func (l *lock) wait(ctx context.Context, steps *Steps, progress *Progress) error {
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	var told owner
	progress.Set("whose is not known")
	for {
		if other, ok := l.read(); ok {
			far := other.Progress
			other.Progress = ""
			if told != other {
				steps.Say("%s builds the same: waiting for it", other)
				told = other
			}
			progress.Set("it is at %s", cmp.Or(far, "its start"))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := l.try(); !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
	}
}

// read returns what the holder has written. It fails while the holder is writing.
func (l *lock) read() (o owner, ok bool) {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, 1<<16))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return owner{}, false
	}
	return o, true
}

// publish writes the progress for processes that wait. Errors are ignored, because the build
// can continue.
func (l *lock) publish(progress string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner.Progress = progress
	text, err := json.Marshal(l.owner)
	if err != nil {
		return
	}
	if _, err := l.file.WriteAt(text, 0); err == nil {
		_ = l.file.Truncate(int64(len(text)))
	}
}

// release empties the file, so that waiting processes do not take the next holder for this
// one.
func (l *lock) release() {
	_ = l.file.Truncate(0)
	l.file.Close()
}
