// SPDX-License-Identifier: Apache-2.0

package validation

import "strings"

// TokenPath is the path at which the ServiceAccount admission plugin mounts the pod's API token, in
// every container that has no mount there (DefaultAPITokenMountPath).
const TokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// TokenVolumePrefix is the prefix of the names of the plugin's volumes.
const TokenVolumePrefix = "kube-api-access-"

// NoTokenVolume is the empty volume that Pillion mounts at TokenPath in containers without a token.
const NoTokenVolume = "pillion-no-token"

// NoTokenSource is the kind of NoTokenVolume, without any items. An emptyDir is local storage: kubectl drain would not remove the
// pod, and the cluster autoscaler would keep its node.
const NoTokenSource = "downwardAPI"

// isTokenVolume reports whether a template may not give this name to a volume.
func isTokenVolume(name string) bool {
	return strings.HasPrefix(name, TokenVolumePrefix) || name == NoTokenVolume
}
