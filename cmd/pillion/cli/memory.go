// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"runtime/debug"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MemoryLimit is the flag for the memory that a process may use.
type MemoryLimit struct{ value resource.QuantityValue }

// Flags adds the flag.
func (l *MemoryLimit) Flags(f *pflag.FlagSet) {
	f.Var(&l.value, "memory-limit", "set the soft limit of `MEMORY`; the garbage collector runs more often as memory use approaches this limit (0: GOMEMLIMIT, or no limit)")
}

// Check reports an invalid limit.
func (l *MemoryLimit) Check() error {
	if l.value.Sign() < 0 {
		return errors.New("--memory-limit must not be negative")
	}
	return nil
}

// Apply passes the limit to Go's runtime. It gets two thirds of the container's limit, because the garbage collector
// does not count the program's own pages and may exceed its limit.
func (l *MemoryLimit) Apply() {
	if limit := l.value.Value(); limit > 0 {
		debug.SetMemoryLimit(limit / 3 * 2)
	}
}
