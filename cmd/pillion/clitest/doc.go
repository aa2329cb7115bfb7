// SPDX-License-Identifier: Apache-2.0

// Package clitest contains helpers for the tests of several packages of the command.
package clitest
