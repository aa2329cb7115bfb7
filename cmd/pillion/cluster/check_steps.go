// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// step is one part of what check reads.
type step struct {
	what string
	read func(context.Context) error
	// skip records why the facts of this step are unknown. If it is nil, no other step makes sense without this one.
	skip func(why string)
}

// runSteps runs the first step, and then all sequences at the same time, each step within a time limit. Steps of a sequence run one
// after the other, because they need what earlier ones have read. After a step that fails, the others still run, because users need
// the report most when something is broken.
func runSteps(ctx context.Context, progress *cli.Progress, first step, sequences ...[]step) error {
	progress.Start()
	defer progress.End()
	for _, together := range [][][]step{{{first}}, sequences} {
		if err := runTogether(ctx, progress, together); err != nil {
			return err
		}
	}
	return nil
}

// runTogether runs sequences at the same time, and reports which steps run.
func runTogether(ctx context.Context, progress *cli.Progress, sequences [][]step) error {
	var lock sync.Mutex
	running, errs := make([]string, len(sequences)), make([]error, len(sequences))
	set := func(i int, what string) {
		lock.Lock()
		defer lock.Unlock()
		running[i] = what
	}
	var all, watching sync.WaitGroup
	for i, steps := range sequences {
		all.Go(func() {
			for _, s := range steps {
				set(i, s.what)
				if errs[i] = s.runLimited(ctx); errs[i] != nil {
					break
				}
			}
			set(i, "")
		})
	}
	ended := make(chan struct{})
	watching.Go(func() {
		tick := time.NewTicker(cli.ProgressInterval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			lock.Lock()
			what := slices.DeleteFunc(slices.Clone(running), func(what string) bool { return what == "" })
			lock.Unlock()
			progress.Say("checking %s", strings.Join(what, ", "))
		}
	})
	all.Wait()
	close(ended)
	watching.Wait()
	return errors.Join(errs...)
}

// runLimited runs the step within the time limit. It returns an error only if no other step makes sense.
func (s *step) runLimited(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	err := s.read(limited)
	switch {
	case err == nil:
	case s.skip == nil, ctx.Err() != nil:
		return NoAnswer(err)
	case errors.Is(err, context.DeadlineExceeded):
		s.skip(check.Unanswered + "within " + readLimit.String())
	default:
		s.skip(whyUnknown(err))
	}
	return nil
}

// whyUnknown returns a sentence about why the facts of a step are unknown.
func whyUnknown(err error) string {
	if _, network := errors.AsType[*url.Error](err); network || isAnswer(err) {
		return check.Unanswered + "to this question: " + cli.OneLine(NoAnswer(err))
	}
	return cli.OneLine(err)
}
