// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestReadyAddresses(t *testing.T) {
	t.Parallel()
	slice := discoveryv1.EndpointSlice{
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"127.0.0.1"}},
			{Addresses: []string{"127.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(1234))}, {Name: new("other"), Port: new(int32(1))}},
	}
	if got := readyAddresses([]discoveryv1.EndpointSlice{slice, {}}); !slices.Equal(got, []string{"127.0.0.1:1234"}) {
		t.Errorf("addresses are %q", got)
	}
}
