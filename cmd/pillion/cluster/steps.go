// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// step is one part of what check reads.
type step struct {
	what string
	read func(context.Context) error
}

// inSteps runs the steps, each within a time limit, and reports which one runs.
func inSteps(ctx context.Context, progress *cli.Progress, steps []step) error {
	progress.Start()
	defer progress.End()
	for _, s := range steps {
		progress.Say("checking %s", s.what)
		if err := within(ctx, s.read); err != nil {
			return NoAnswer(err)
		}
	}
	return nil
}

func within(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return read(ctx)
}

// unknown returns the sentence about a missing right, or any other error.
func unknown(err error, verb, resource, namespace string) (string, error) {
	if apierrors.IsForbidden(err) {
		return "you are not allowed to " + verb + " " + resource + InNamespace(namespace), nil
	}
	return "", err
}
