// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// linesPerSecond bounds the log lines about one broken template or caller. They are lines
// with the same webhook, template and reason.
const linesPerSecond = 10

// sampler allows [linesPerSecond] and counts the lines that it skips. Concurrent requests may share
// it; a few lines more or less are harmless. The limiter of
// golang.org/x/time would take a lock for every line, and does not count skipped ones.
type sampler struct {
	second, lines, skipped atomic.Int64
}

// takeLine reports whether to write a line, and returns an attribute with the number of skipped lines.
func (s *sampler) takeLine(now time.Time) (skipped []slog.Attr, ok bool) {
	if second := now.Unix(); s.second.Swap(second) != second {
		s.lines.Store(0)
	}
	if s.lines.Add(1) > linesPerSecond {
		s.skipped.Add(1)
		return nil, false
	}
	if n := s.skipped.Swap(0); n > 0 {
		skipped = []slog.Attr{slog.Int64("skipped", n)}
	}
	return skipped, true
}
