// SPDX-License-Identifier: Apache-2.0

// Command recording runs a command on a pseudo terminal and draws what it prints as an animated SVG. It takes 15 seconds:
// waits are shortened, and long output scrolls evenly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/creack/pty"
)

func main() {
	dir, into := flag.String("dir", ".", "run the command in this `FOLDER`"), flag.String("into", "", "write the SVG to this `FILE`")
	from := flag.String("from", "", "leave out what the command prints before a line that contains this `TEXT`")
	flag.Parse()
	if err := recordCommand(*dir, *into, *from, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func recordCommand(dir, into, from string, args []string) error {
	if len(args) == 0 || into == "" {
		return errors.New("usage: recording -into FILE COMMAND [ARGUMENT...]")
	}
	r := &recorder{started: time.Now()}
	command := strings.Join(args, " ")
	r.print(0, "$ "+command+"\n")
	if err := r.record(dir, args); err != nil {
		return err
	}
	if err := private(r.text()); err != nil {
		return err
	}
	lines, err := cut(r.lines, from)
	if err != nil {
		return err
	}
	return os.WriteFile(into, draw(command, pace(lines)), 0o644)
}

// record runs the command, and shows what it prints.
func (r *recorder) record(dir string, args []string) error {
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), surroundings), "TERM=xterm")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		return err
	}
	defer terminal.Close()
	_, err = io.Copy(io.MultiWriter(os.Stdout, r), terminal)
	if failed := cmd.Wait(); failed != nil {
		return failed
	}
	if _, ended := errors.AsType[*os.PathError](err); ended { // EIO, when the last process has closed the terminal
		err = nil
	}
	return err
}

// surroundings reports whether a variable is about a surrounding make or turns colors off.
func surroundings(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "NO_COLOR", "KEEP", "TEMPLATES"}, name)
}

// private returns an error if a string names this machine, its user or the folder of the checkout.
func private(text string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	here, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	for _, word := range []string{host, home, filepath.Dir(here), os.TempDir()} {
		if word != "" && word != "/" && strings.Contains(text, word) {
			return fmt.Errorf("nothing is written, because the output contains %s", word)
		}
	}
	return nil
}
