// SPDX-License-Identifier: Apache-2.0

// Package serve is pillion serve: the webhook server, its certificate, its callers, and what it follows while it runs.
package serve
