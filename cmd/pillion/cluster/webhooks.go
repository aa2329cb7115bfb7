// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/manifests"
)

// readWebhooks reads the webhooks that are called for pods.
func (k *survey) readWebhooks(ctx context.Context) error {
	k.mutation, k.validation = k.readMutation(ctx, k.noteUnseen), k.readValidation(ctx, k.noteUnseen)
	k.awaited = map[string]string{}
	of := k.namespaceLabels(ctx)
	optedIn := func(namespace string) (map[string]string, bool) { // treats every namespace as opted in
		labels, known := of(namespace)
		if known && namespace != k.system {
			with := map[string]string{}
			maps.Copy(with, labels)
			with[inject.LabelInject] = inject.Enabled
			return with, known
		}
		return labels, known
	}
	for _, loop := range status.Loops(k.mutation, k.validation, k.system, optedIn) {
		k.awaited[loop.Namespace] = fmt.Sprintf("the %s runs there and is called for Pillion's own pods; if each waited for the other, neither would start", loop.Webhook)
	}
	return k.readOwnWebhooks(ctx, k.mutation)
}

// readOwnWebhooks finds Pillion's own webhooks among all webhooks. If the user may not list webhooks, it reads only Pillion's.
func (k *survey) readOwnWebhooks(ctx context.Context, m *status.Mutation) error {
	own := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if i := slices.IndexFunc(m.Webhooks, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool { return c.Name == m.Own }); i >= 0 {
		own = &m.Webhooks[i]
	} else if m.Webhooks == nil {
		var err error
		resource := admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
		own, err = getObject[admissionregistrationv1.MutatingWebhookConfiguration](ctx, k.Resource(resource), manifests.Name)
		switch {
		case apierrors.IsForbidden(err):
			k.own.Unknown = true
			k.checkOwnWebhooks(ctx, own)
			k.noteUnseen("You are not allowed to get mutatingwebhookconfigurations, so whether the API server calls Pillion is unknown.")
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return err
		}
	}
	k.own.Entries, k.own.Installed = explain.MutatingEntries(own), own.CreationTimestamp.Time
	if len(k.own.Entries) == 0 && len(m.OwnPolicies()) > 0 {
		k.own.Unknown = true // policies that pillion policy wrote inject the pods
	}
	if i := slices.IndexFunc(k.validation.Webhooks, func(c admissionregistrationv1.ValidatingWebhookConfiguration) bool { return c.Name == m.Own }); i >= 0 {
		k.own.Entries = append(k.own.Entries, explain.ValidatingEntries(&k.validation.Webhooks[i])...)
	}
	k.checkOwnWebhooks(ctx, own)
	return nil
}

// notInstalled returns a sentence about what follows from it that no mutating webhook of Pillion is installed, or "" if one
// is installed.
func notInstalled(entries []explain.Entry) string {
	missing := "No MutatingWebhookConfiguration of Pillion is installed, so nothing is injected. Apply the manifests of Pillion again; `pillion check` lists what is missing."
	for i := range entries {
		switch e := &entries[i]; {
		case e.Type == explain.Mutating:
			return ""
		case e.Type == explain.Validating && e.FailurePolicy == string(admissionregistrationv1.Fail):
			missing = fmt.Sprintf("The MutatingWebhookConfiguration %[1]s does not exist, but the ValidatingWebhookConfiguration %[1]s does, and it denies new pods that opted in. "+
				"Create the missing one again (the manifests of Pillion have it), or delete the other one too.", e.Configuration)
		}
	}
	return missing
}

// checkOwnWebhooks adds to the report what is wrong (problems) or unknown (doubts) about the installed webhooks. In both cases, the
// report suggests no restarts.
func (k *survey) checkOwnWebhooks(ctx context.Context, own *admissionregistrationv1.MutatingWebhookConfiguration) {
	if k.unsure.blind {
		return // the report says so
	}
	if k.own.Unknown {
		k.report.Doubts = append(k.report.Doubts, "It is unknown which webhooks of Pillion are installed, or policies inject instead of them.")
		return
	}
	if missing := notInstalled(k.own.Entries); missing != "" {
		k.report.Problems = append(k.report.Problems, missing)
	}
	switch problem, unsure := k.checkAnswers(ctx, own); {
	case problem != "":
		k.report.Problems = append(k.report.Problems, problem)
	case unsure != "":
		k.report.Doubts = append(k.report.Doubts, unsure)
	}
}
