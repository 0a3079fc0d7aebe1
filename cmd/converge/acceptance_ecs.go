package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/acceptance"
)

func newCmdAcceptanceECS(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	o := &acceptanceOptions{f: f}
	var at acceptance.ECS
	cmd := &cobra.Command{
		Use:   "ecs",
		Short: "Try a cluster of Amazon ECS",
		Long: `Try a cluster of Amazon ECS with a service of one task. Without --subnet the task runs on
the cluster's own instances, with it on Fargate. ECS finds out in its own time that an image
cannot be pulled: allow for a quarter of an hour.`,
		Example: `  converge acceptance ecs --cluster test --region eu-west-1
  converge acceptance ecs --cluster test --region eu-west-1 --subnet subnet-0a1b2c3d --public-ip`,
		Args: cobra.NoArgs,
		RunE: running(o, runF, o.run, func([]string) (err error) {
			if at.Cluster == "" || at.Region == "" {
				return errors.New("--cluster and --region say where")
			}
			if err := o.check(); err != nil {
				return err
			}
			o.place, err = at.Place()
			return err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&at.Cluster, "cluster", "", "name of the cluster (required)")
	flags.StringVar(&at.Region, "region", "", "its region (required)")
	flags.StringVar(&at.Role, "role-arn", "", "role that the workers assume (default: their own credentials)")
	flags.StringVar(&at.Image, "image", "registry.k8s.io/pause", "image that can be pulled there")
	flags.StringArrayVar(&at.Subnets, "subnet", nil, "subnet of the task, which then runs on Fargate (repeatable)")
	flags.BoolVar(&at.Public, "public-ip", false, "with --subnet: give the task a public address, where nothing else leads to the registry")
	o.flags(cmd, 30*time.Minute)
	return cmd
}
