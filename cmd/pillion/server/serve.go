// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// slotsPerCPU is more than one, because goroutines may be preempted.
const slotsPerCPU = 2

// ballast is never written, so it takes no memory, but the garbage collector counts it.
// Without it, the usual heap of 3 MiB is collected after every 3 MiB of garbage, which takes a
// tenth of the CPU time. A larger GOGC has the same effect, but also lets a large heap grow.
var ballast []byte //nolint:unused // what refers to it keeps it

const ballastSize = 10 << 20

// maxCPUs limits the CPUs in use, because memory use grows with them. Four CPUs answer tens of
// thousands of requests per second.
const maxCPUs = 4

// limitRuntime sets the limits of Go's runtime. Environment variables take precedence.
func (o *Options) limitRuntime() {
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, ballastSize)
	}
	o.memoryLimit.Apply()
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > maxCPUs {
		runtime.GOMAXPROCS(maxCPUs)
	}
}

// Run serves until ctx is done and all connections are drained, or until an error occurs.
func (o *Options) Run(ctx context.Context, flags *pflag.FlagSet, log *slog.Logger) error {
	o.limitRuntime()
	registry := prometheus.NewRegistry()
	certificate, err := o.newCertificate(log)
	if err != nil {
		return fmt.Errorf("the serving certificate: %w", err)
	}
	objects, err := o.newObjects(log)
	if err != nil {
		return err
	}
	known, accounts, follow, err := o.newNamespaces()
	if err != nil {
		return err
	}
	reloader, err := newTemplateReloader(sources{o.Templates, objects, accounts}, o.Excluded, log, registry)
	if err != nil {
		return fmt.Errorf("the templates are invalid:\n%w", err)
	}
	reloader.warnUninjected(o.warnUninjected())
	callerCheck, err := o.callerOptions.newCallerCheck(ctx, callerCluster{o.kubeconfig, o.tls.configuration}, log, registry)
	if err != nil {
		return fmt.Errorf("the credentials of callers: %w", err)
	}
	limits, err := o.newNamespaceLimits()
	if err != nil {
		return err
	}
	tracer, stopTracing, err := o.trace.newTracer(ctx, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	limiter := webhook.NewLimiter(registry, slotsPerCPU*runtime.GOMAXPROCS(0), o.requestMemory.Value())
	config := newConfiguration(o, flags, log, registry)
	config.live["max-request-memory"] = func(next *Options) { limiter.SetMemory(next.requestMemory.Value()) }
	config.live["uninjected-pods"] = func(next *Options) { reloader.warnUninjected(next.warnUninjected()) }
	config.reloadFile() // before this replica is ready, so that later changes are applied as changes
	s := &server{
		options: o, config: config, limiter: limiter, log: log, registry: registry, reloader: reloader, namespaces: known,
		certificate: certificate, callerCheck: callerCheck, limits: limits, tracer: tracer,
	}
	return s.run(ctx, slices.Concat(certificate.follow, limits.follow, []func(context.Context){config.followFile, reloader.reloadOnChange, follow, callerCheck.followSources})...)
}
