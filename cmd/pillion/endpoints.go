// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// readyEndpoints is how many endpoints of a Service are ready.
func (l *podLister) readyEndpoints(ctx context.Context, namespace, service string) (int, error) {
	var found []discoveryv1.EndpointSlice
	client := l.Resource(discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).Namespace(namespace)
	if err := allOf(ctx, l, client, discoveryv1.LabelServiceName+"="+service, &found); err != nil {
		return 0, err
	}
	n := 0
	for _, slice := range found {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}
