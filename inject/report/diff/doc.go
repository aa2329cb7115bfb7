// SPDX-License-Identifier: Apache-2.0

// Package diff compares what new pods get by two sets of templates: the set in use, and another one. It
// starts from pod templates of workloads, and from pods without what was injected. So the differences are
// those of the templates, not those between running pods and the templates, which are for
// [github.com/pillion-dev/pillion/inject/report/status].
package diff
