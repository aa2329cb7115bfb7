// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

func TestMain(m *testing.M) { clitest.RunTests(m) }
