// SPDX-License-Identifier: Apache-2.0

// Package diff compares what new pods get by two sets of templates: the set in use, and another one. It
// starts from pod templates of workloads, and from pods without what was injected. So it shows only differences between
// the sets. The package [github.com/pillion-dev/pillion/inject/report/status] compares running pods with the templates.
package diff
