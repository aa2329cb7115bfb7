// SPDX-License-Identifier: Apache-2.0

package params

import (
	"fmt"
	"strings"
)

// InvalidValueError reports a parameter's value that is invalid, or missing.
type InvalidValueError struct {
	Param  string
	Key    string // of the annotation
	Source string // as in Value, or "" if there is no value
	Text   string
	reason string
}

// Error returns one sentence.
func (e *InvalidValueError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("parameter %s has no value; set the annotation %s", e.Param, e.Key)
	}
	return fmt.Sprintf("the %s's annotation %s %s", e.Source, e.Key, e.reason)
}

// InvalidValuesError reports all of a template's parameters with an invalid value, or without one.
type InvalidValuesError []*InvalidValueError

// Error returns a sentence for each of them, up to a limit.
func (e InvalidValuesError) Error() string {
	const most = 8
	var all []string
	for i, one := range e {
		if i == most {
			all = append(all, fmt.Sprintf("and %d more", len(e)-most))
			break
		}
		all = append(all, one.Error())
	}
	return strings.Join(all, "; ")
}
