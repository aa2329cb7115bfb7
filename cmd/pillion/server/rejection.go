// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// rejection is a new file or object that is invalid, so it is not used.
type rejection struct {
	what    string
	instead string // what is used instead
	since   time.Time
	err     error
}

// String returns a sentence for users.
func (r *rejection) String() string {
	return fmt.Sprintf("%s is rejected since %s%s: %s", r.what, r.since.UTC().Format(time.RFC3339), r.instead, cli.OneLine(r.err))
}

// stableText returns what is the same as long as nothing changes.
func (r *rejection) stableText() string { return r.what + r.instead + r.err.Error() }

// mostRejections limits what readiness reports.
const mostRejections = 20

// loadsCounter returns a counter of new content, by whether it was used or rejected.
func loadsCounter(registry prometheus.Registerer, name, help string) *prometheus.CounterVec {
	loads := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	loads.WithLabelValues("used")
	loads.WithLabelValues("rejected")
	return loads
}
