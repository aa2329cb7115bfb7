// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// readyEndpoints returns the number of ready endpoints of a Service.
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

// unanswered explains the effect of webhooks that do not answer.
const unanswered = "If Pillion does not answer, the API server denies pods for which a webhook has failurePolicy Fail, and accepts others without sidecars."

// nobodyAnswers explains the effect of a Service without ready endpoints.
func nobodyAnswers(service *admissionregistrationv1.ServiceReference) string {
	return fmt.Sprintf("The Service %s in the namespace %s has no ready endpoint; check its pods. "+
		"%s", service.Name, service.Namespace, unanswered)
}
