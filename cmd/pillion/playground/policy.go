// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"errors"
	"strings"

	"github.com/pillion-dev/pillion/inject/policy"
	"github.com/pillion-dev/pillion/templates"
)

func policyOf(set *templates.Set, kind string) *Policy {
	p := &Policy{Problems: []string{}, Notes: []string{}}
	express := policy.Mutating
	if kind == "validating" {
		express = policy.Validating
	}
	objects, err := express(set, policy.Options{})
	if err == nil && len(objects) == 0 {
		err = errors.New("there is nothing to enforce, because no template has required: true")
	}
	var text []byte
	if err == nil {
		text, err = policy.YAML(objects)
	}
	if err != nil {
		p.Problems = strings.Split(err.Error(), "\n")
		return p
	}
	p.YAML = string(text)
	if kind != "validating" {
		p.Notes = append(p.Notes, policy.Notes(set, policy.Options{})...)
	}
	return p
}
