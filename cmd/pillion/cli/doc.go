// SPDX-License-Identifier: Apache-2.0

// Package cli holds what all commands of pillion share: flags, configuration, errors and output.
//
// Viper reads all three sources of a setting: the flags of the command line, the environment and the file of --config,
// in this order. What is written here is what viper does not do: it checks no type and no unknown key, and does not know
// from which line a value comes. Settings are flat, because viper ignores the case of keys and splits them at dots;
// templates and other objects are never read with it.
package cli
