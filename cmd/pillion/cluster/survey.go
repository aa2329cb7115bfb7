// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/templates/request"
)

// survey reads the namespaces and pods of a cluster once, for one report. Status, diff, check and rollout each extend it.
type survey struct {
	*podLister
	injector   *inject.Injector
	report     *status.Report
	mutation   *status.Mutation
	validation *status.Validation
	fits       *limits.Evaluator
	notes      map[string]bool
	accounts   request.ServiceAccounts
	unsure     unsure            // about the templates
	selector   labels.Selector   // of pods
	own        status.Scope      // what all namespaces have in common, for example Pillion's own webhooks
	found      int               // the number of namespaces to read, which the progress shows
	shadowed   []string          // shadow namespaces
	wrong      []string          // namespaces with a label value that has no meaning
	awaited    map[string]string // namespaces in which no pod may wait for Pillion, with the reason
	events     int               // number of owners whose events were read, see maxEvents
	vanishing  bool              // whether a namespace that does not exist is skipped, because it was listed before
}

func (k *survey) addNote(text string) { k.notes[text] = true }

// noteUnseen is [Installation.noteUnseen] for a survey.
func (k *survey) noteUnseen(text string) {
	if !k.unsure.blind {
		k.addNote(text)
	}
}
