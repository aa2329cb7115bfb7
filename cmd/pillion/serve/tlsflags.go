// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// tlsOptions are the flags of serve about its certificate.
type tlsOptions struct {
	certFile      string
	keyFile       string
	secret        string
	selfSigned    bool
	configuration string
	policy        certs.Policy
}

func (o *tlsOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.certFile, "tls-cert-file", "", "the `FILE` of the serving certificate with its chain, PEM")
	f.StringVar(&o.keyFile, "tls-key-file", "", "the `FILE` of the serving certificate's key, PEM")
	f.StringVar(&o.secret, "tls-secret", "", "make CA and certificate, keep them in this Secret (`NAMESPACE/NAME`) for all replicas, and keep the webhook configurations' caBundles")
	f.BoolVar(&o.selfSigned, "tls-self-signed", false, "serve with a certificate made at the start, for trying things out")
	f.StringSliceVar(&o.policy.Hosts, "tls-host", []string{manifests.ServiceHost}, "a `HOST` that a certificate of --tls-secret is for; may be repeated")
	f.DurationVar(&o.policy.LeafLifetime, "tls-lifetime", 90*24*time.Hour, "the `TIME` that a certificate of --tls-secret is valid; it is renewed at two thirds")
	f.DurationVar(&o.policy.CALifetime, "tls-ca-lifetime", 10*365*24*time.Hour, "the `TIME` that a CA of --tls-secret is valid; it is renewed at two thirds")
	f.StringVar(&o.configuration, "webhook-configuration", manifests.Name,
		"the `NAME` of the webhook configurations, NAME-advise with --advise: a new certificate is served once their caBundles verify it")
}

// check finds flags that make no sense.
func (o *tlsOptions) check(standalone bool) error {
	files := o.certFile != "" || o.keyFile != ""
	sources := 0
	for _, used := range []bool{files, o.selfSigned, o.secret != ""} {
		if used {
			sources++
		}
	}
	switch {
	case sources == 0:
		return errors.New("say --tls-cert-file and --tls-key-file, or --tls-secret, or --tls-self-signed to try things out")
	case sources > 1:
		return errors.New("say only one of --tls-cert-file with --tls-key-file, --tls-secret, and --tls-self-signed")
	case files && (o.certFile == "" || o.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file go together")
	case standalone && o.secret != "":
		return errors.New("--standalone does not go with --tls-secret")
	case standalone && o.configuration != manifests.Name:
		return errors.New("--standalone does not go with --webhook-configuration")
	}
	if o.secret == "" {
		return nil
	}
	switch _, _, ok := splitName(o.secret); {
	case !ok:
		return fmt.Errorf("--tls-secret must be NAMESPACE/NAME, not %q", o.secret)
	case len(o.policy.Hosts) == 0:
		return errors.New("--tls-host must name a host")
	case o.policy.LeafLifetime < time.Second || o.policy.CALifetime < 3*o.policy.LeafLifetime:
		return errors.New("--tls-ca-lifetime must be three times --tls-lifetime or more")
	}
	return nil
}

// splitName splits NAMESPACE/NAME.
func splitName(text string) (namespace, name string, ok bool) {
	namespace, name, _ = strings.Cut(text, "/")
	return namespace, name, namespace != "" && name != "" && !strings.Contains(name, "/")
}
