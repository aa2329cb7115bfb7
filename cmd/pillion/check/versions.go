// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/manifests"
)

// Versions are the versions of what runs in a cluster.
type Versions struct {
	// Kubernetes is the version of the API server, for example v1.36.2, or "" if it is unknown.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Servers are the replicas of pillion serve.
	Servers []ServerVersion `json:"servers,omitempty"`
	// Unknown is why the versions of the servers are unknown, or "".
	Unknown string `json:"unknown,omitempty"`
}

// ServerVersion is the version of a replica, or, without a name, the tag of the image that the replicas should have.
type ServerVersion struct {
	Replica  string `json:"replica,omitempty"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// Templates is the revision of the set of templates that this build renders, or "" if it is unknown. Two builds may
	// render the same templates in different ways.
	Templates string `json:"templates,omitempty"`
}

// buildMetric and setMetric match the metrics pillion_build_info and pillion_templates, and metricLabel their labels.
var (
	buildMetric = regexp.MustCompile(`(?m)^pillion_build_info\{(.*)\} 1`)
	setMetric   = regexp.MustCompile(`(?m)^pillion_templates\{(.*)\} \d`)
	metricLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// ReadServerVersion returns what the metrics of a replica say, except for its name. Version is "" if they have no
// pillion_build_info.
func ReadServerVersion(metrics []byte) ServerVersion {
	build := readLabels(buildMetric, metrics)
	return ServerVersion{Version: build["version"], Revision: build["revision"], Templates: readLabels(setMetric, metrics)["revision"]}
}

// readLabels returns the labels of a metric that has one series, or nil.
func readLabels(metric *regexp.Regexp, metrics []byte) map[string]string {
	found := metric.FindSubmatch(metrics)
	if found == nil {
		return nil
	}
	labels := map[string]string{}
	for _, label := range metricLabel.FindAllSubmatch(found[1], -1) {
		labels[string(label[1])] = string(label[2])
	}
	return labels
}

// Skew returns a sentence for each difference that matters: between the replicas, between them and a program with this version
// and revision, and between the API server and what Pillion is tested with.
func (v *Versions) Skew(version, revision string) (warnings []string) {
	var seen, sets []string
	differs := ""
	for _, s := range v.Servers {
		if s.Templates != "" && !slices.Contains(sets, s.Templates) {
			sets = append(sets, s.Templates)
		}
		if !slices.Contains(seen, s.Version+" "+s.Revision) {
			seen = append(seen, s.Version+" "+s.Revision)
		}
		if s.Version != version || s.Revision != "" && revision != "" && s.Revision != revision {
			differs = s.Version
			if s.Version == version {
				differs += ", of revision " + s.Revision
			}
		}
	}
	if len(seen) > 1 {
		warnings = append(warnings, "The replicas have different versions. If this lasts longer than an update, see `"+
			"kubectl rollout status deployment/"+manifests.Name+"`.")
	}
	if len(sets) > 1 {
		warnings = append(warnings, "The replicas use different templates. If this lasts longer than a change of the templates, see why in their logs: `kubectl -n "+manifests.Namespace+" logs -l app.kubernetes.io/name="+manifests.Name+" --prefix`.")
	}
	if differs != "" {
		warnings = append(warnings, fmt.Sprintf("This program is %s, and Pillion in the cluster is %s. Commands that read the cluster may report something else than it does: use the version of the cluster.", version, differs))
	}
	switch checkAPIServer(v.Kubernetes, Commands{}).Result {
	case Failed:
		warnings = append(warnings, fmt.Sprintf("Kubernetes %s is too old: Pillion needs %s or later.", v.Kubernetes, manifests.MinKubernetes))
	case Warning:
		warnings = append(warnings, fmt.Sprintf("Kubernetes %s is newer than the versions that this Pillion is tested on (%s to %s).", v.Kubernetes, manifests.MinKubernetes, manifests.MaxKubernetes))
	}
	return warnings
}

// Text returns a line for each version in the cluster, and one about what is unknown.
func (v *Versions) Text() string {
	var b strings.Builder
	for _, s := range v.Servers {
		name := "replica " + s.Replica
		if s.Replica == "" {
			name = "image of the replicas"
		}
		fmt.Fprintf(&b, "%s: %s", name, s.Version)
		if s.Revision != "" && !strings.Contains(s.Version, s.Revision[:min(12, len(s.Revision))]) {
			b.WriteString(" (revision " + s.Revision + ")")
		}
		if s.Templates != "" {
			b.WriteString(", templates of revision " + s.Templates)
		}
		b.WriteString("\n")
	}
	what := "replicas"
	if v.Kubernetes == "" {
		what = "cluster"
	}
	if v.Unknown != "" {
		b.WriteString(what + ": unknown, because " + v.Unknown + "\n")
	}
	if v.Kubernetes != "" {
		b.WriteString("Kubernetes: " + v.Kubernetes + "\n")
	}
	return b.String()
}
