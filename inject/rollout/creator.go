// SPDX-License-Identifier: Apache-2.0

package rollout

import "fmt"

// whyNotAdded returns why a pod may not change in place if only containers that a webhook added may, or "". A record alone
// does not show who wrote a container, because any user may add one to a pod.
func (o *Pod) whyNotAdded(by managers) (why string) {
	created := by.createdContainers()
	for i := range o.Changes {
		c := &o.Changes[i]
		list, name, _ := c.container()
		switch {
		case c.How != InPlace && c.How != Resize:
		case len(created) == 0:
			return "its managed fields do not show which containers its creator wrote, so only a user with rights of their own may change it"
		case created[list+"/"+name]:
			return fmt.Sprintf("its creator wrote the container %s, so only a user with rights of their own may change it", name)
		}
	}
	return ""
}
