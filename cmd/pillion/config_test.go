// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// TestNoFlagIsAServicesVariable checks that no flag has the name of a variable that Kubernetes
// sets. For a Service named pillion, it sets PILLION_PORT, PILLION_PORT_443_TCP,
// PILLION_SERVICE_HOST and more in the pods of the namespace.
func TestNoFlagIsAServicesVariable(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "port" || strings.HasPrefix(f.Name, "port-") || strings.HasPrefix(f.Name, "service-host") || strings.HasPrefix(f.Name, "service-port") {
				t.Errorf("%s --%s", cmd.Name(), f.Name)
			}
		})
	}
}

// TestHelp checks that the help of every command describes it and has an example.
func TestHelp(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if cmd.Short == "" || !strings.HasPrefix(cmd.Example, "  ") {
			t.Errorf("%s has no short help or no examples", cmd.Name())
		}
	}
}

// TestPrintedConfig checks that the file that --print-config writes means the same as the flags,
// for any values.
func TestPrintedConfig(t *testing.T) {
	printed := func(args ...string) (map[string]any, string) {
		var out, errs bytes.Buffer
		if code := run(append([]string{"serve", "--print-config"}, args...), nil, &out, &errs); code != 0 {
			t.Fatal(errs.String())
		}
		values := map[string]any{}
		must(t, yaml.UnmarshalStrict(out.Bytes(), &values))
		return values, out.String()
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	first, text := printed("--standalone", "--tls-self-signed=true", "--listen", "yes", "--admin-listen", "0777", "--log-level", "debug",
		"--templates", "on,1", "--templates", `"a,b"`, "--templates", "# no comment", "--shutdown-delay", "0s", "--exclude-namespace", "")
	write(t, file, text)
	again, text := printed("--config", file)
	if !maps.EqualFunc(first, again, func(a, b any) bool {
		x, _ := yaml.Marshal(a)
		y, _ := yaml.Marshal(b)
		return bytes.Equal(x, y)
	}) {
		t.Errorf("%v\n%v", first, again)
	}
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, " # file "+file+"\n") {
			t.Errorf("not from the file: %s", line)
		}
	}
	flags := newServe().Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		if _, printed := first[f.Name]; !printed && !slices.Contains([]string{"config", "print-config", "help"}, f.Name) {
			t.Errorf("--%s is not printed", f.Name)
		}
		if strings.HasPrefix(cli.KindOf(f), "a whole number") && !strings.HasPrefix(f.Value.Type(), "int") && !strings.HasPrefix(f.Value.Type(), "uint") {
			t.Errorf("--%s is a %s, which the configuration file does not know", f.Name, f.Value.Type())
		}
	})
}

// TestStrangeVariables checks that variables that have Pillion's prefix and set no flag are
// reported. Variables that Kubernetes sets for a Service are not reported.
func TestStrangeVariables(t *testing.T) {
	got := cli.StrangeVariables(newRoot(), []string{
		"HOME=/", "PILLIONS=1", "PILLION_LISTEN=:1", "PILLION_ADVISE=a",
		"PILLION_PORT=tcp://10.0.0.1:443", "PILLION_PORT_443_TCP=x", "PILLION_PORT_443_TCP_ADDR=x", "PILLION_SERVICE_HOST=x",
		"PILLION_SERVICE_PORT=443", "PILLION_SERVICE_PORT_WEBHOOK=443", "PILLION_METRICS_SERVICE_HOST=x", "PILLION_METRICS_PORT_80_UDP_PROTO=udp",
		"PILLION_SHUTDOWN_DELY=x", "PILLION_LOGLEVEL=debug", "PILLION_ZZZZZZ=1",
	})
	want := []string{
		"the environment variable PILLION_SHUTDOWN_DELY sets no flag; did you mean PILLION_SHUTDOWN_DELAY?",
		"the environment variable PILLION_LOGLEVEL sets no flag; did you mean PILLION_LOG_LEVEL?",
		"the environment variable PILLION_ZZZZZZ sets no flag",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestWhereValuesComeFrom checks that a flag has precedence over the environment, the environment
// over the file, and the file over the default. It tries every flag with each combination of these
// sources.
func TestWhereValuesComeFrom(t *testing.T) {
	candidates := []string{"true", "false", "3", "5", "7", "0.5", "0.25", "0.75", "3s", "5s", "7s", "debug", "warn", "error", "optional", "required", "text", "Warn", "a", "b", "c"}
	newServe().Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"config", "print-config", "help"}, f.Name) {
			return
		}
		_, list := f.Value.(pflag.SliceValue)
		var values []string
		for _, text := range candidates {
			fresh := newServe().Flags().Lookup(f.Name)
			if err := fresh.Value.Set(text); err == nil && (f.Value.Type() == "bool" || text != f.DefValue) {
				values = append(values, text)
			}
		}
		if len(values) == 1 { // the only one but the default
			values = append(values, f.DefValue)
		}
		if values = values[:min(len(values), 3)]; len(values) == 2 { // for example true and false
			values = append(values, values[0])
		}
		if len(values) < 3 {
			t.Fatalf("no values for --%s", f.Name)
		}
		for used := range 8 {
			flags, want, source := newServe().Flags(), f.DefValue, "default"
			file := filepath.Join(t.TempDir(), "config.yaml")
			content := "{}"
			if used&1 != 0 {
				value := values[0]
				if f.Value.Type() == "string" || list {
					value = strconv.Quote(value)
				}
				if list {
					value = "[" + value + "]"
				}
				content, want, source = f.Name+": "+value, values[0], "file "+file
			}
			write(t, file, content)
			t.Setenv(cli.Variable(f.Name), "")
			if used&2 != 0 {
				t.Setenv(cli.Variable(f.Name), values[1])
				want, source = values[1], "environment "+cli.Variable(f.Name)
			}
			args := []string{"--config", file}
			if used&4 != 0 {
				args = append(args, "--"+f.Name+"="+values[2])
				want, source = values[2], "flag"
			}
			must(t, flags.Parse(args))
			must(t, cli.Configure(flags))
			got := flags.Lookup(f.Name)
			same := newServe().Flags().Lookup(f.Name)
			if source != "default" {
				must(t, same.Value.Set(want))
			}
			if got.Value.String() != same.Value.String() || cli.ValueSource(got) != source {
				t.Errorf("--%s, places %03b: %s from %s, want %s from %s", f.Name, used, got.Value, cli.ValueSource(got), same.Value, source)
			}
			t.Setenv(cli.Variable(f.Name), "")
		}
	})
}
