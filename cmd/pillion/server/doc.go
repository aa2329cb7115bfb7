// SPDX-License-Identifier: Apache-2.0

// Package server implements pillion serve: the webhook server, its certificate, the authentication of its callers,
// and the files and objects that it watches.
package server
