// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// Failing is an owner that cannot create all its pods, or does not find them.
type Failing struct {
	Namespace string `json:"namespace"`
	Owner
	Why string `json:"why"` // from its status or an event
	// Hint is what to do about that, and Command is how, if the cause is known.
	Hint    string `json:"hint,omitempty"`
	Command string `json:"command,omitempty"`

	unexplained string // a sentence, if the status has no reason
}

// setAdvice sets the hint and the command.
func (f *Failing) setAdvice(help explain.Help) {
	help.Namespace = f.Namespace
	if denial, known := explain.ParseDenial(f.Why, help); known {
		f.Hint, f.Command = denial.Hint, denial.Command
	}
}

// losesPods reports whether it creates pods and does not find them.
func (f *Failing) losesPods() bool { return strings.HasPrefix(f.Why, explain.LosesPods) }

// String returns a sentence.
func (f *Failing) String() string {
	if f.losesPods() {
		return fmt.Sprintf("%s in the namespace %s %s", f.title(), f.Namespace, strings.TrimPrefix(f.Why, "it "))
	}
	return fmt.Sprintf("%s in the namespace %s cannot create its pods: %s", f.title(), f.Namespace, f.Why)
}
