// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
)

// TestDeclaredToken checks that a ServiceAccount of a manifest decides whether its pods get a token.
func TestDeclaredToken(t *testing.T) {
	t.Parallel()
	for text, noToken := range map[string]bool{"": false, "automountServiceAccountToken: true": false, "automountServiceAccountToken: false": true} {
		var all manifest.Declared
		if err := all.Read(yamledit.Document{Body: []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: app}\n" + text + "\n")}); err != nil {
			t.Fatal(err)
		}
		if account, ok := all.Account("shop", "app", true); !ok || account.NoToken != noToken {
			t.Errorf("%q: %+v", text, account)
		}
	}
}
