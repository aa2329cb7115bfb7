// SPDX-License-Identifier: Apache-2.0

// Package shipped tests what is shipped beside the program and that no API server
// knows: the alerts, by Prometheus' own libraries, the dashboard, and what becomes of
// the Dockerfile. A module of its own keeps those libraries from everything else.
package shipped
