// SPDX-License-Identifier: Apache-2.0

// Package cli holds what all commands of pillion share: flags, configuration, errors and output.
//
// Viper finds the value of each flag: on the command line, in the environment or in the file of --config, in this
// order. It is used for flags alone, whose names are flat: viper ignores the case of keys and splits them at dots,
// which would break names of templates and namespaces.
package cli
