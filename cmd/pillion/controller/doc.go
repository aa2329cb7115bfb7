// SPDX-License-Identifier: Apache-2.0

// Package controller is pillion controller. It writes the status of template objects, keeps their history, updates running pods to
// them (automatic rollouts), and creates Events about pods that lack sidecars. The webhooks do not need it.
package controller
