// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package programs

import "syscall"

// ChildAttributes returns attributes for a child process. Without Linux's parent death signal,
// the terminal's interrupt must also reach the children.
func ChildAttributes() *syscall.SysProcAttr { return nil }
