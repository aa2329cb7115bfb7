// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/pillion-dev/pillion/inject/rollout"
)

func (c *Count) newPlanner() *rollout.Planner {
	p := &rollout.Planner{Injector: c.injector, Namespace: c.scope.Namespace, Mutated: c.scope.Mutated, Resizes: c.scope.Resizes}
	if !c.scope.Unknown {
		p.Called = func(pod []byte) bool { called, _ := c.callsPillion(pod); return called }
	}
	return p
}

// planExamples finds out what a rollout would do with the examples of an owner's pods. Object is the owner as JSON, or nil if it is
// unknown or there is none.
func (c *Count) planExamples(g *group, object []byte) error {
	planner := c.newPlanner()
	examples := g.examples
	g.examples = nil
	for _, pod := range examples {
		p, err := planner.Plan(pod, object)
		if err != nil {
			return err
		}
		p.Forget()
		g.plans = append(g.plans, p)
	}
	return nil
}

// PlanOthers finds out what a rollout would do with the pods of owners that [Count.ConsiderRestart] is not called for.
func (c *Count) PlanOthers() error {
	for o, g := range c.owners {
		if o.restartArgument() == "" {
			if err := c.planExamples(g, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// changesInPlace reports whether pillion rollout would change pods of an owner in place.
func (g *group) changesInPlace(o Owner) bool {
	if g.updating { // the owner's controller may replace the pods before a rollout changes them
		return false
	}
	w := &rollout.Workload{Kind: o.Kind, Name: o.Name, Behind: g.plans}
	owner := rollout.Owner{Restarts: o.restartArgument() != "", Job: o.Kind == "Job"}
	if held := g.holdReason(); owner.Restarts {
		owner.Hold = held
	}
	w.Choose(owner)
	return w.Way == rollout.ChangeInPlace
}
