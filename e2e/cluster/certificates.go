// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"time"
)

// ServingUntil is Serving with another expiration time.
func (a *Authority) ServingUntil(end time.Time, hosts ...string) (cert, key []byte, err error) {
	template := certificateTemplate("serving")
	template.NotBefore, template.NotAfter = end.Add(-certificateLifetime), end
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = hosts
	return a.issue(template)
}

// Gauge returns the sum of the series that have all these labels.
func (m Metrics) Gauge(name string, labels map[string]string) float64 {
	var sum float64
	for _, series := range m[name].GetMetric() {
		if hasLabels(series, labels) {
			sum += series.GetGauge().GetValue()
		}
	}
	return sum
}

// Readiness returns Pillion's readiness, with a line for each check.
func (p *Pillion) Readiness(ctx context.Context) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/readyz?verbose", nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
