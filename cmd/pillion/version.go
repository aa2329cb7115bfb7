// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates/tree"
)

// version is what the build says about itself.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  pillion version
  pillion version -o json`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return oneOf("output", output, "text", "json", "yaml") },
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			v := buildVersion()
			switch output {
			case "json":
				return writeJSON(cmd.OutOrStdout(), v)
			case "yaml":
				return writeYAML(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v)
			return err
		}),
	}
	outputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}

func buildVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// buildInfo is the version as a metric.
func buildInfo() prometheus.Collector {
	v := buildVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pillion_build_info", Help: "1, with the version, the revision and the Go version of this build.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "go_version": v.Go},
	}, func() float64 { return 1 })
}

// String is one line: pillion v0.1.0 (revision 0123abcd, go1.26.0, linux/amd64). A
// version between two releases has the revision in it, and whether it was modified.
func (v version) String() string {
	s := "pillion " + v.Version + " ("
	if v.Revision != "" && !strings.Contains(v.Version, v.Revision[:min(12, len(v.Revision))]) {
		s += "revision " + v.Revision + ", "
	}
	if v.Modified && !strings.HasSuffix(v.Version, "+dirty") {
		s += "modified, "
	}
	return s + v.Go + ", " + v.Platform + ")"
}

// outputFlag is -o with the values that the command knows; the first is the default.
func outputFlag(cmd *cobra.Command, output *string, values ...string) {
	cmd.Flags().StringVarP(output, "output", "o", values[0], "the format of the result:")
	choices(cmd, "output", values...)
}

// choices ends a flag's usage with the values that there are, and has them completed.
func choices(cmd *cobra.Command, flag string, values ...string) {
	cmd.Flags().Lookup(flag).Usage += " `" + strings.Join(values, "|") + "`"
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// writeJSON writes JSON for people and programs.
func writeJSON(w io.Writer, v any) error { return jsonEncoder(w, "  ").Encode(v) }

// writeYAML writes as YAML what [writeJSON] writes as JSON: its members in their order.
func writeYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := writeJSON(&text, v); err != nil {
		return err
	}
	n, err := tree.Parse(text.Bytes())
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(yamledit.FromTree(n)), encoder.Close())
}

// jsonEncoder writes a line for each value where indent is "". Nobody puts it into HTML.
func jsonEncoder(w io.Writer, indent string) *json.Encoder {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder
}
