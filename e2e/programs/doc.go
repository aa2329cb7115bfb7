// SPDX-License-Identifier: Apache-2.0

// Package programs finds or builds the programs for the demo and the tests, and shows its
// progress. It imports no large packages, because it must compile before it can show anything.
package programs
