// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cluster

import "syscall"

// childAttributes: without Linux' parent death signal, the terminal's interrupt must reach the children too.
func childAttributes() *syscall.SysProcAttr { return nil }
