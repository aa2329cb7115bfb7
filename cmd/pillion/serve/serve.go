// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/inject/webhook"
)

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
func (o *Options) limitRuntime() {
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

// Run serves until ctx is done and everything is drained, or something fails.
func (o *Options) Run(ctx context.Context, flags *pflag.FlagSet, log *slog.Logger) error {
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
	engine, err := newEngine(o.Templates, o.Excluded, more, log, registry)
	if err != nil {
		return fmt.Errorf("the templates are invalid:\n%w", err)
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
	config.live["max-request-memory"] = func(next *Options) { limiter.SetMemory(next.requestMemory.Value()) }
	config.live["uninjected-pods"] = func(next *Options) { engine.warnUninjected(next.warnUninjected()) }
	config.reload() // before anybody is told that this one is ready: what changes from then on is a change
	s := &server{
		options: o, config: config, limiter: limiter, log: log, registry: registry, engine: engine, namespaces: known,
		certificate: certificate, callers: callers, advice: advice, tracer: tracer,
	}
	return s.run(ctx, slices.Concat(certificate.follow, advice.follow, []func(context.Context){config.follow, engine.watch, follow, callers.follow})...)
}
