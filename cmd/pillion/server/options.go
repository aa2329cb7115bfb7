// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Options are the flags of pillion serve.
type Options struct {
	PrintConfig bool
	Templates   []string // files and folders
	Excluded    []string // namespaces
	Limits      kube.Limits

	config              string
	listen, adminListen string
	tls                 tlsOptions
	kubeconfig          string
	standalone          bool
	uninjected          string
	shutdownDelay       time.Duration
	requestMemory       resource.QuantityValue
	memoryLimit         cli.MemoryLimit
	advise              bool
	callerOptions       callerOptions
	log                 cli.LogOptions
	trace               traceOptions
}

// Flags adds the flags to a command.
func (o *Options) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "read values of the other flags from this YAML `FILE`")
	f.BoolVar(&o.PrintConfig, "print-config", false, "print the values of all flags and their sources, as a file for --config, and exit")
	f.StringSliceVarP(&o.Templates, "templates", "t", nil, "use the templates in this file or folder (`PATH`), in addition to those in the cluster; may be repeated")
	f.StringVar(&o.listen, "listen", ":8443", "serve the webhooks at this `ADDRESS`")
	f.StringVar(&o.adminListen, "admin-listen", ":8080", "serve /livez, /readyz and /metrics at this `ADDRESS`")
	o.tls.addFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "use this kubeconfig `FILE` (default: the cluster that Pillion runs in)")
	f.BoolVar(&o.standalone, "standalone", false, "use no Kubernetes API: namespaces have no labels or annotations, and every pod counts as opted in")
	f.StringSliceVar(&o.Excluded, "exclude-namespace", nil, "exclude this `NAMESPACE`, in addition to the system namespaces; may be repeated")
	f.StringVar(&o.uninjected, "uninjected-pods", string(v1alpha1.Deny), "for pods that the mutating webhook did not inject because it was not called or did not answer, use this `MODE`: Deny, or Warn to follow the template's validate.mode")
	cli.Limit(cmd, "uninjected-pods", string(v1alpha1.Deny), string(v1alpha1.Warn))
	f.DurationVar(&o.shutdownDelay, "shutdown-delay", 5*time.Second, "keep serving for this `TIME` after readiness is off")
	o.requestMemory.Quantity = resource.MustParse("64Mi")
	f.Var(&o.requestMemory, "max-request-memory", "limit the `MEMORY` of all current requests together, in addition to 48 KiB for each; a request that needs more gets HTTP 429, and the API server retries")
	o.memoryLimit.Flags(f)
	o.Limits.Flags(f)
	f.BoolVar(&o.advise, "advise", false, "also watch LimitRanges and ResourceQuotas, so that /advise can warn if injected pods exceed them")
	o.callerOptions.addFlags(cmd)
	o.log.Flags(cmd)
	o.trace.addFlags(f)
}

// Check returns an error for flags that contradict each other.
func (o *Options) Check() error {
	if err := o.checkValues(); err != nil || o.PrintConfig { // users may print an incomplete configuration
		return err
	}
	switch {
	case o.standalone && len(o.Templates) == 0:
		return errors.New("name the templates: --templates PATH")
	case o.standalone && o.kubeconfig != "":
		return errors.New("--standalone cannot be used with --kubeconfig")
	case o.standalone && o.advise:
		return errors.New("--standalone cannot be used with --advise")
	}
	if err := o.tls.checkFlags(o.standalone); err != nil {
		return err
	}
	if err := o.callerOptions.checkFlags(o.standalone); err != nil {
		return err
	}
	return o.trace.checkFlags()
}

// checkValues returns an error for values that are invalid by themselves.
func (o *Options) checkValues() error {
	switch {
	case o.shutdownDelay < 0:
		return errors.New("--shutdown-delay must not be negative")
	case o.requestMemory.Cmp(resource.MustParse("64Mi")) < 0:
		return errors.New("--max-request-memory must be at least 64Mi: the largest request needs that much")
	}
	if err := o.memoryLimit.Check(); err != nil {
		return err
	}
	return o.Limits.Check()
}

// Logger returns a logger with the configured level and format.
func (o *Options) Logger(w io.Writer) *slog.Logger { return o.log.Logger(w) }

func (o *Options) warnUninjected() bool { return o.uninjected == string(v1alpha1.Warn) }
