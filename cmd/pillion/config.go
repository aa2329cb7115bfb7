// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

const environmentPrefix = "PILLION"

// fromEnvironment sets every flag that was not given from its variable:
// --admin-listen from PILLION_ADMIN_LISTEN. A list is separated by commas.
//
// No flag may be called "port", "service-host" or "service-port": a Service
// named pillion makes Kubernetes set such variables in its namespace's pods.
func fromEnvironment(flags *pflag.FlagSet) error {
	environment := viper.New()
	environment.SetEnvPrefix(environmentPrefix)
	environment.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	environment.AutomaticEnv()
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || !environment.IsSet(f.Name) {
			return
		}
		if err := flags.Set(f.Name, environment.GetString(f.Name)); err != nil {
			wrong = append(wrong, fmt.Errorf("%s_%s in the environment: %w",
				environmentPrefix, strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), err))
		}
	})
	return errors.Join(wrong...)
}
