// SPDX-License-Identifier: Apache-2.0

// Package cli contains what all commands of pillion share: flags, configuration, errors and output.
//
// Viper reads all three sources of a setting: the flags of the command line, the environment and the file of --config,
// in this order. This package adds what viper does not do: it checks types and unknown keys, and it knows the line of
// each value. Settings are flat, because viper ignores the case of keys and splits them at dots. Templates and other
// objects are never read with viper.
package cli
