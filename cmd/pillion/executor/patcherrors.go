// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errAgain means that the pod has changed since it was planned.
var errAgain = errors.New("the pod keeps changing")

// changedMeanwhile reports whether a patch failed because the pod has changed since it was planned. In this case, a test of the JSON
// Patch fails, and the API server's error has no cause. If the API server denies the result of the patch, the error has causes.
func changedMeanwhile(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return apierrors.IsConflict(err) || ok && apierrors.IsInvalid(err) && (status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0)
}

// explainPatchError explains the error of a request.
func explainPatchError(what string, err error) error {
	switch {
	case changedMeanwhile(err):
		return errAgain
	case apierrors.IsNotFound(err):
		return err
	case isDenied(err):
		return fmt.Errorf("the API server denied the %s: %w", what, err)
	}
	return err
}

// isDenied reports whether the API server has denied a change, so that nothing has changed.
func isDenied(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// isAccessDenied reports whether the user lacks a right or is not authenticated, so that it is useless to try again.
func isAccessDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
