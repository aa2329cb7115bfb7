// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/pillion-dev/pillion/cmd/pillion/clitest"

// What the tests of the packages below need too.
const (
	agentTemplate = clitest.AgentTemplate
	patience      = clitest.Patience
)

var (
	must, write, until = clitest.Must, clitest.Write, clitest.Until
	template, tooWide  = clitest.Template, clitest.TooWide
)
