package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/intent/config"
)

func newCmdSchema(f *Factory, runF func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration",
		Long: `Print the JSON Schema of the configuration, for completion and checking in editors.
Name it in the first line of a file:

  # yaml-language-server: $schema=./converge.schema.json`,
		Example: `  converge schema > converge.schema.json`,
		Args:    exactArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context())
			}
			_, err := f.Out.Write(config.JSONSchema())
			return err
		},
	}
}
