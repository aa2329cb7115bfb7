// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart in manifests/chart.
package chart
