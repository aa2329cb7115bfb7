// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// collectedWarnings are what the API server told a client beside its answers.
type collectedWarnings struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *collectedWarnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func warnedClient(t *testing.T) (kubernetes.Interface, *collectedWarnings) {
	t.Helper()
	client, warnings, err := clientWithWarnings(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client, warnings
}

// clientWithWarnings returns a client of a cluster, and the warnings that it gets.
func clientWithWarnings(config *rest.Config) (kubernetes.Interface, *collectedWarnings, error) {
	warnings := &collectedWarnings{}
	config = rest.CopyConfig(config)
	config.WarningHandler = warnings
	client, err := kubernetes.NewForConfig(config)
	return client, warnings, err
}

func wantWarning(t *testing.T, warnings *collectedWarnings, part string) {
	t.Helper()
	warnings.mu.Lock()
	defer warnings.mu.Unlock()
	if part == "" && len(warnings.text) > 0 {
		t.Errorf("warnings %q, want none", warnings.text)
	}
	if !slices.ContainsFunc(warnings.text, func(w string) bool { return strings.Contains(w, part) }) && part != "" {
		t.Errorf("warnings %q, want one with %q", warnings.text, part)
	}
}
