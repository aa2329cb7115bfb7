// SPDX-License-Identifier: Apache-2.0

// Package shipped tests what ships with the program and is not used by API servers: the
// alerts, with Prometheus' own libraries, the dashboard, and the image of the Dockerfile. It
// is a module of its own, to keep these libraries out of the others.
package shipped
