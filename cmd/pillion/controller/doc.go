// SPDX-License-Identifier: Apache-2.0

// Package controller is pillion controller, which writes the status of template objects. The webhooks
// do not need it.
package controller
