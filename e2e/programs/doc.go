// SPDX-License-Identifier: Apache-2.0

// Package programs finds or builds the programs that the demo and the tests run, and shows how far it is. It
// imports nothing large: it has to compile before there is anything to show.
package programs
