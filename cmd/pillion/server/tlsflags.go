// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// tlsOptions are the flags of serve for its certificate.
type tlsOptions struct {
	certFile      string
	keyFile       string
	secret        string
	selfSigned    bool
	configuration string
	policy        certs.Policy
}

func (o *tlsOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.certFile, "tls-cert-file", "", "read the serving certificate and its chain from this `FILE`, PEM")
	f.StringVar(&o.keyFile, "tls-key-file", "", "read the key of the serving certificate from this `FILE`, PEM")
	f.StringVar(&o.secret, "tls-secret", "", "create a CA and certificates, store them in this Secret (`NAMESPACE/NAME`) for all replicas, and update the caBundles of the webhook configurations")
	f.BoolVar(&o.selfSigned, "tls-self-signed", false, "create a certificate at the start, for trying Pillion out")
	f.StringSliceVar(&o.policy.Hosts, "tls-host", []string{manifests.ServiceHost}, "create certificates of --tls-secret for this `HOST`; may be repeated")
	f.DurationVar(&o.policy.LeafLifetime, "tls-lifetime", 90*24*time.Hour, "create certificates of --tls-secret that are valid for this `TIME`; they are renewed after two thirds of it")
	f.DurationVar(&o.policy.CALifetime, "tls-ca-lifetime", 10*365*24*time.Hour, "create CAs of --tls-secret that are valid for this `TIME`; they are renewed after two thirds of it")
	f.StringVar(&o.configuration, "webhook-configuration", manifests.Name,
		"check the caBundles of the webhook configurations with this `NAME`, and NAME-advise with --advise: a new certificate is served as soon as they verify it")
}

// checkFlags returns an error for flags that contradict each other.
func (o *tlsOptions) checkFlags(standalone bool) error {
	files := o.certFile != "" || o.keyFile != ""
	sources := 0
	for _, used := range []bool{files, o.selfSigned, o.secret != ""} {
		if used {
			sources++
		}
	}
	switch {
	case sources == 0:
		return errors.New("use --tls-cert-file and --tls-key-file, or --tls-secret, or --tls-self-signed to try Pillion out")
	case sources > 1:
		return errors.New("use only one of --tls-cert-file with --tls-key-file, --tls-secret, and --tls-self-signed")
	case files && (o.certFile == "" || o.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file must be used together")
	case standalone && o.secret != "":
		return errors.New("--standalone cannot be used with --tls-secret")
	case standalone && o.configuration != manifests.Name:
		return errors.New("--standalone cannot be used with --webhook-configuration")
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
		return errors.New("--tls-ca-lifetime must be at least three times --tls-lifetime")
	}
	return nil
}

// splitName splits NAMESPACE/NAME.
func splitName(text string) (namespace, name string, ok bool) {
	namespace, name, _ = strings.Cut(text, "/")
	return namespace, name, namespace != "" && name != "" && !strings.Contains(name, "/")
}
