// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// condition is a readiness condition. It returns a detail for users, or an error if the
// condition is not met.
type condition struct {
	name string
	run  func() (detail string, err error)
}

// mostScrapes limits the concurrent requests for metrics. It is more than a few Prometheus
// servers need.
const mostScrapes = 10

// newAdminHandler returns the handler of the admin address. Its clients are the kubelet, Prometheus and users.
func newAdminHandler(registry *prometheus.Registry, conditions []condition) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: mostScrapes}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writePlainText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { writeReadiness(w, r, conditions) })
	return mux
}

// writeReadiness answers "ok", or, with ?verbose or if a condition fails, one line per condition, in
// the format of API servers. Their own handler is part of k8s.io/apiserver, which this program
// does not use otherwise:
//
//	[+]templates ok: revision 0123456789ab, 3 in use
//	[-]namespaces failed: the namespaces are not loaded yet
func writeReadiness(w http.ResponseWriter, r *http.Request, conditions []condition) {
	var lines bytes.Buffer
	status := http.StatusOK
	for _, c := range conditions {
		detail, err := c.run()
		if err != nil {
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok: %s\n", c.name, detail)
	}
	switch {
	case status != http.StatusOK:
		lines.WriteString("not ready\n")
	case r.URL.Query().Has("verbose"):
		lines.WriteString("ready\n")
	default:
		lines.Reset()
		lines.WriteString("ok\n")
	}
	writePlainText(w, status, lines.String())
}

func writePlainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
