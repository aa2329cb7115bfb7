// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	config, templateSelector, templateNamespace string
	printConfig                                 bool
	templates                                   []string
	listen                                      string
	adminListen                                 string
	tls                                         tlsOptions
	kubeconfig                                  string
	standalone                                  bool
	excluded                                    []string
	uninjected                                  string
	shutdownDelay                               time.Duration
	requestMemory, memoryLimit                  resource.QuantityValue
	advise                                      bool
	callers                                     callerOptions
	log                                         logOptions
	trace                                       traceOptions
}

func newServe() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the admission webhooks",
		Long: `Serve answers the API server's admission webhooks over TLS: /mutate adds what
the templates say, /validate judges what came out, /shadow tells what would become
of a pod and changes nothing, and /advise tells who writes a workload what will be
wrong with its pods. The admin address serves /livez, /readyz (?verbose tells more)
and /metrics in plain HTTP.

Templates, certificate files and the file of --config are followed: a changed one is
used without a restart, and a bad one leaves the last good one in use. Of the
configuration, the log level, --max-request-memory and --uninjected-pods change at
once; /readyz?verbose says what needs a restart. A flag wins over the environment,
and that over the file.
SIGTERM and SIGINT turn readiness off, wait until the API server sends no more, and
finish what is left. SIGHUP changes nothing.`,
		Example: `  # In a cluster.
  pillion serve --templates /etc/pillion/templates \
    --tls-cert-file /etc/pillion/tls/tls.crt --tls-key-file /etc/pillion/tls/tls.key

  # To try it, without a cluster and without a certificate.
  pillion serve -t templates/ --standalone --tls-self-signed --listen 127.0.0.1:8443`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			strange := strangeVariables(cmd.Root(), os.Environ())
			if o.printConfig {
				for _, sentence := range strange {
					fmt.Fprintln(cmd.ErrOrStderr(), fold(cmd.ErrOrStderr(), "pillion: "+sentence))
				}
				return printConfig(cmd.OutOrStdout(), cmd.Flags())
			}
			log, err := o.log.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			klog.SetSlogLogger(log) // what client-go has to say
			for _, sentence := range strange {
				log.Warn("an environment variable is not understood", "problem", sentence)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			// Files are followed anyway, and nobody's pod is to wait because nobody reads the log.
			signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
			return o.serve(ctx, cmd.Flags(), log)
		}),
	}
	o.flags(cmd)
	return cmd
}

func (o *serveOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "a YAML `FILE` with values for the other flags, by their names")
	f.BoolVar(&o.printConfig, "print-config", false, "write the values of all flags, and where they come from, as a file for --config, and end")
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "a file or folder (`PATH`) of templates; may be repeated")
	f.StringVar(&o.templateSelector, "template-configmaps", "", "take templates from the ConfigMaps with these labels too (`SELECTOR`, such as "+manifests.TemplateSelector+")")
	f.StringVar(&o.templateNamespace, "template-namespace", manifests.Namespace, "the `NAMESPACE` of these ConfigMaps")
	f.StringVar(&o.listen, "listen", ":8443", "the `ADDRESS` of the webhooks")
	f.StringVar(&o.adminListen, "admin-listen", ":8080", "the `ADDRESS` of /livez, /readyz and /metrics")
	o.tls.flags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "the `FILE` that says how to reach the cluster (default: the one that Pillion runs in)")
	f.BoolVar(&o.standalone, "standalone", false, "use no Kubernetes API: nothing but the name of a namespace is known, and being asked about a pod counts as its opt-in")
	f.StringSliceVar(&o.excluded, "exclude-namespace", nil, "a `NAMESPACE` in which nothing is injected, besides the system's; may be repeated")
	f.StringVar(&o.uninjected, "uninjected-pods", string(templates.Deny), "what to do about a pod that the mutating webhook should have injected and did not, because it was not called or did not answer: `MODE` Deny, or Warn to go by the template's validate.mode")
	f.DurationVar(&o.shutdownDelay, "shutdown-delay", 5*time.Second, "the `TIME` to go on serving after readiness is off")
	o.requestMemory.Quantity = resource.MustParse("64Mi")
	f.Var(&o.requestMemory, "max-request-memory", "how much `MEMORY` requests may take at a time, beyond 48 KiB for each; a request that needs more gets 429, and the API server retries")
	f.Var(&o.memoryLimit, "memory-limit", "how much `MEMORY` the container may take: near it the garbage is collected more often (0: GOMEMLIMIT, or none)")
	f.BoolVar(&o.advise, "advise", false, "follow LimitRanges and ResourceQuotas too, so that /advise can tell which of them injected pods will break")
	o.callers.flags(cmd)
	o.log.flags(cmd)
	o.trace.flags(f)
}

// check finds flags that make no sense.
func (o *serveOptions) check() error {
	if err := o.checkValues(); err != nil || o.printConfig { // which may be asked for before all is there
		return err
	}
	switch {
	case len(o.templates) == 0 && o.templateSelector == "":
		return errors.New("name the templates: --templates PATH, or --template-configmaps SELECTOR")
	case o.standalone && o.templateSelector != "":
		return errors.New("--standalone does not go with --template-configmaps")
	case o.standalone && o.kubeconfig != "":
		return errors.New("--standalone does not go with --kubeconfig")
	case o.standalone && o.advise:
		return errors.New("--standalone does not go with --advise")
	}
	if err := o.tls.check(o.standalone); err != nil {
		return err
	}
	if err := o.callers.check(o.standalone); err != nil {
		return err
	}
	return o.trace.check()
}

// checkValues finds values that are wrong by themselves.
func (o *serveOptions) checkValues() error {
	switch {
	case o.templateNamespace == "":
		return errors.New("--template-namespace must name a namespace")
	case o.shutdownDelay < 0:
		return errors.New("--shutdown-delay must not be negative")
	case o.requestMemory.Cmp(resource.MustParse("64Mi")) < 0:
		return errors.New("--max-request-memory must be at least 64Mi: the largest request takes that much")
	case o.memoryLimit.Sign() < 0:
		return errors.New("--memory-limit must not be negative")
	}
	if err := oneOf("uninjected-pods", o.uninjected, string(templates.Deny), string(templates.Warn)); err != nil {
		return err
	}
	if err := checkSelector(o.templateSelector); err != nil {
		return err
	}
	_, err := o.log.logger(nil)
	return err
}

func (o *serveOptions) warnUninjected() bool { return o.uninjected == string(templates.Warn) }

var errNoTemplatesFlag = errors.New("name the templates: --templates PATH")

// slotsPerCPU: one would do, were it never stopped for others to go on.
const slotsPerCPU = 2

// ballast is never written, so it takes no memory; the garbage collector counts it. Without it,
// a heap of 3 MiB, as most have, is collected after 3 MiB of garbage, which is a tenth of all
// CPU. A larger GOGC would do the same, and let a large heap grow by as much again.
var ballast []byte //nolint:unused // what refers to it keeps it

const ballastSize = 10 << 20

// maxCPUs is how many are used of a node that has more: memory, for one, grows with
// them, and four answer tens of thousands of requests per second.
const maxCPUs = 4

// limitRuntime tells Go's runtime what there is; the environment goes before it. The
// collector gets two thirds of a container's limit: it does not count the program's
// own pages, nor keep to it exactly.
func (o *serveOptions) limitRuntime() {
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, ballastSize)
	}
	if limit := o.memoryLimit.Value(); limit > 0 {
		debug.SetMemoryLimit(limit / 3 * 2)
	}
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > maxCPUs {
		runtime.GOMAXPROCS(maxCPUs)
	}
}

// serve runs until ctx is done and everything is drained, or something fails.
func (o *serveOptions) serve(ctx context.Context, flags *pflag.FlagSet, log *slog.Logger) error {
	o.limitRuntime()
	registry := prometheus.NewRegistry()
	certificate, err := o.newCertificate(log)
	if err != nil {
		return fmt.Errorf("the serving certificate: %w", err)
	}
	more, err := o.newConfigMaps(log)
	if err != nil {
		return err
	}
	engine, err := newEngine(o.templates, o.excluded, more, log, registry)
	if err != nil {
		return fmt.Errorf("the templates cannot be used:\n%w", err)
	}
	engine.warnUninjected(o.warnUninjected())
	callers, err := o.callers.newCallers(ctx, callerCluster{o.kubeconfig, o.tls.configuration}, log, registry)
	if err != nil {
		return fmt.Errorf("the credentials of callers: %w", err)
	}
	known, follow, err := o.newNamespaces()
	if err != nil {
		return err
	}
	advice, err := o.newAdvice()
	if err != nil {
		return err
	}
	tracer, stopTracing, err := o.trace.tracer(ctx, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	limiter := webhook.NewLimiter(registry, slotsPerCPU*runtime.GOMAXPROCS(0), o.requestMemory.Value())
	config := newConfiguration(o, flags, log, registry)
	config.live["max-request-memory"] = func(next *serveOptions) { limiter.SetMemory(next.requestMemory.Value()) }
	config.live["uninjected-pods"] = func(next *serveOptions) { engine.warnUninjected(next.warnUninjected()) }
	config.reload() // before anybody is told that this one is ready: what changes from then on is a change
	s := &server{
		options: o, config: config, limiter: limiter, log: log, registry: registry, engine: engine, namespaces: known,
		certificate: certificate, callers: callers, advice: advice, tracer: tracer,
	}
	return s.run(ctx, slices.Concat(certificate.follow, advice.follow, []func(context.Context){config.follow, engine.watch, follow, callers.follow})...)
}
