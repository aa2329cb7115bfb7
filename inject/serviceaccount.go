// SPDX-License-Identifier: Apache-2.0

package inject

import "fmt"

// unknownServiceAccount reports whether the template reads a ServiceAccount of which only the name is
// known. Without its annotations, the pod would get the wrong values.
func unknownServiceAccount(s *subject, t *loaded) (bool, string) {
	if !t.ReadsServiceAccount() || s.request.account.Known {
		return false, ""
	}
	return true, fmt.Sprintf("the template reads the ServiceAccount %s, which is not known in the namespace %s", s.request.account.Name, s.request.namespace.Name)
}

func whyKnownServiceAccount(s *subject, t *loaded) string {
	if !t.ReadsServiceAccount() {
		return "the template reads no ServiceAccount"
	}
	return fmt.Sprintf("the ServiceAccount %s is known", s.request.account.Name)
}
