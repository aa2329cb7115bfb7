// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/url"

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

// inSteps runs the steps, each within a time limit, and reports which one runs. After a step that fails, the others still run,
// because users need the report most when something is broken.
func inSteps(ctx context.Context, progress *cli.Progress, steps []step) error {
	progress.Start()
	defer progress.End()
	for _, s := range steps {
		progress.Say("checking %s", s.what)
		err := runWithTimeout(ctx, s.read)
		switch {
		case err == nil:
		case s.skip == nil, ctx.Err() != nil:
			return NoAnswer(err)
		case errors.Is(err, context.DeadlineExceeded):
			s.skip(check.Unanswered + "within " + readLimit.String())
		default:
			s.skip(whyUnknown(err))
		}
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

func runWithTimeout(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return read(ctx)
}
