// SPDX-License-Identifier: Apache-2.0

package programs

import "syscall"

// ChildAttributes returns attributes for a child process. It dies with its parent, and an
// interrupt from the terminal reaches only the parent, which then stops the children in order.
// The kernel watches the thread that starts the child, so that thread must stay.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
