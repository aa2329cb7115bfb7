// SPDX-License-Identifier: Apache-2.0

// Package clitest holds what the tests of several packages of the command need.
package clitest
