// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
)

// mayAllow precedes the command that gives rights, in a sentence that names it.
const mayAllow = " An administrator can allow it:"

// newInjector returns an injector with the templates in the files, or, without files, with
// the templates that the Pillion in the cluster uses. It excludes the namespaces that this Pillion excludes, as far as
// its settings are known. It passes sentences about what is unknown to note, or adds them to wrong.
func (c *Client) newInjector(ctx context.Context, paths []string, note func(string), wrong *unsure) (*inject.Injector, error) {
	var settings []string // sentences about unknown settings
	d, err := c.readServerConfig(ctx, func(text string) { settings = append(settings, text) })
	if err != nil {
		return nil, withoutTemplates(err)
	}
	if d.guessed && len(paths) > 0 {
		wrong.doubts = append(wrong.doubts, "You are not allowed to read the Deployment of Pillion, so its configuration is uncertain.")
	}
	theirs := unsure{}
	set, err := d.readTemplateSet(ctx, &theirs)
	if len(paths) == 0 && d.guessed && theirs.blind {
		wrong.unread, wrong.blind, wrong.invalid = true, true, theirs.invalid
		why := fmt.Sprintf("You are not allowed to read Pillion's templates and settings, so what Pillion does with the pods is unknown.%s `%s`. Or let an administrator run the same command, or use --templates PATH.", mayAllow, c.viewerCommand(ctx))
		wrong.problems, wrong.denied = append(wrong.problems, why), append(wrong.denied, why)
		return inject.New(set, d.options.Excluded...), err
	}
	for _, text := range settings {
		note(text)
	}
	if d.guessed && len(paths) == 0 {
		wrong.doubts = append(wrong.doubts, "You are not allowed to read the Deployment of Pillion, so its configuration is uncertain.")
	}
	if len(paths) == 0 && (d.guessed || len(theirs.denied) > 0) {
		note(fmt.Sprintf("An administrator can give you the rights that this report lacks: `%s`.", c.viewerCommand(ctx)))
	}
	if len(paths) == 0 {
		wrong.unread, wrong.denied, wrong.invalid = theirs.unread, theirs.denied, theirs.invalid
		wrong.stopped, wrong.running, wrong.unserved = theirs.stopped, theirs.running, theirs.unserved
		for _, text := range theirs.notes {
			note(text)
		}
		wrong.problems, wrong.doubts = append(wrong.problems, theirs.problems...), append(wrong.doubts, theirs.doubts...)
	} else {
		theirs, known := set, err == nil && d.found && len(theirs.problems) == 0
		if set, err = cli.LoadTemplates(c.stdin, paths); err != nil {
			return nil, err
		}
		if wrong.others = known && set.Revision != theirs.Revision; wrong.others {
			wrong.doubts = append(wrong.doubts, "The templates of --templates differ from those of the cluster, which new pods get.")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the templates are unknown: %w", withoutTemplates(err))
	}
	return inject.New(set, d.options.Excluded...), nil
}

// Injector returns an injector with the templates and the excluded namespaces of the Pillion in the cluster,
// and notes, for example about templates that it does not use. It returns an error if some templates are
// unknown.
func (c *Client) Injector(ctx context.Context) (*inject.Injector, []string, error) {
	var notes []string
	var wrong unsure
	i, err := c.newInjector(ctx, nil, func(text string) { notes = append(notes, text) }, &wrong)
	if err == nil && len(wrong.problems) > 0 {
		err = errors.New(strings.Join(wrong.problems, "\n"))
	}
	return i, append(notes, wrong.doubts...), NoAnswer(err)
}

func withoutTemplates(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w%s", err, ofFiles+ofOwn)
	}
	return err
}
