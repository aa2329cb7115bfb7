// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
)

// preparing collects the facts before the installation.
type preparing struct {
	*podLister
	Checking
	*check.PreFacts
}

// CheckedBefore reads what the checks before the installation need.
func (c *Client) CheckedBefore(ctx context.Context, how Checking, stderr io.Writer) (*check.PreFacts, error) {
	p := &preparing{&podLister{c, &cli.Progress{}}, how, &check.PreFacts{Commands: how.Commands, Namespace: c.system, Overlay: how.Overlay}}
	err := runSteps(ctx, cli.NewProgress(stderr), step{"the version", p.readVersion, nil},
		[]step{{"native sidecars", p.readSidecars, func(why string) { p.Sidecars.Unknown = why }}},
		[]step{{"rights", p.reviewRights, func(why string) { p.NoRights = why }}},
		[]step{{"cert-manager", p.certManager, func(why string) { p.NoCertManager = why }}},
		[]step{{"other installations", p.findOthers, func(why string) { p.Others.Unknown = why }}},
	)
	return p.PreFacts, err
}

func (p *preparing) readVersion(ctx context.Context) (err error) {
	p.Version, err = p.serverVersion(ctx)
	return err
}

func (p *preparing) readSidecars(ctx context.Context) (err error) {
	p.Sidecars, err = p.checkSidecars(ctx, p.NamespaceOr(p.Checking.Namespace))
	return err
}

func (p *preparing) reviewRights(ctx context.Context) error {
	needed, err := manifests.DeployerRights(p.Checking.Overlay)
	if err != nil {
		return err
	}
	all := needed.Expand(p.system)
	p.Rights = len(all)
	p.Denied, err = p.deniedToUser(ctx, all)
	p.NoRights, err = whyForbidden(err, "create", "selfsubjectaccessreviews", "")
	return err
}

// certManager finds out whether the API server serves cert-manager's kinds.
func (p *preparing) certManager(ctx context.Context) error {
	api, err := p.restClient()
	if err != nil {
		return err
	}
	_, err = api.Get().AbsPath("/apis/" + manifests.CertManagerGroup + "/v1").Do(ctx).Raw()
	if p.CertManager = err == nil; apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// findOthers finds the webhook configurations with webhooks of Pillion.
func (p *preparing) findOthers(ctx context.Context) error {
	for _, c := range []certs.Configuration{certs.Mutating, certs.Validating} {
		var all []admissionregistrationv1.ValidatingWebhookConfiguration // both kinds have the same relevant fields
		err := listAll(ctx, p.podLister, c.Resource(), &all)
		if p.Others.Unknown, err = whyForbidden(err, "list", c.Resource().Resource, ""); err != nil || p.Others.Unknown != "" {
			return err
		}
		for i := range all {
			if o, ok := otherInstallation(c, &all[i]); ok {
				p.Others.All = append(p.Others.All, o)
			}
		}
	}
	return nil
}

// otherInstallation describes a configuration, if it has a webhook of Pillion.
func otherInstallation(c certs.Configuration, w *admissionregistrationv1.ValidatingWebhookConfiguration) (o check.Other, ok bool) {
	for i := range w.Webhooks {
		if !strings.HasSuffix(w.Webhooks[i].Name, "."+templates.Domain) {
			continue
		}
		o = check.Other{Title: c.Kind() + "/" + w.Name, Own: w.Name == manifests.Name || w.Name == manifests.Name+"-advise"}
		if s := w.Webhooks[i].ClientConfig.Service; s != nil {
			o.Namespace = s.Namespace
		}
		return o, true
	}
	return o, false
}
