// SPDX-License-Identifier: Apache-2.0

package programs

import "syscall"

// ChildAttributes are for a program that this one starts: it dies with its parent however that ends, and an
// interrupt from the terminal reaches the parent alone, which then stops the children in order. The kernel goes
// by the thread that starts the program, so that thread has to stay.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
