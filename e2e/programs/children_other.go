// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package programs

import "syscall"

// ChildAttributes are for a program that this one starts. Without Linux' parent death signal, the terminal's
// interrupt must reach the children too.
func ChildAttributes() *syscall.SysProcAttr { return nil }
