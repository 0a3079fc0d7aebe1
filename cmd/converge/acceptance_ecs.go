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
	var cluster acceptance.ECS
	cmd := &cobra.Command{
		Use:   "ecs",
		Short: "Test an Amazon ECS cluster",
		Long: `Test an Amazon ECS cluster with a service of one task. Without --subnet the task runs on
the cluster's own instances, with --subnet on Fargate. ECS is slow to report an image that
cannot be pulled: expect about 15 minutes.`,
		Example: `  converge admin acceptance ecs --cluster test --region eu-west-1
  converge admin acceptance ecs --cluster test --region eu-west-1 --subnet subnet-0a1b2c3d --public-ip`,
		Args: cobra.NoArgs,
		RunE: newRunE(o, runF, o.run, func([]string) (err error) {
			if cluster.Cluster == "" || cluster.Region == "" {
				return errors.New("--cluster and --region are required")
			}
			if err := o.check(); err != nil {
				return err
			}
			o.env, err = cluster.Environment()
			return err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&cluster.Cluster, "cluster", "", "name of the cluster (required)")
	flags.StringVar(&cluster.Region, "region", "", "region of the cluster (required)")
	flags.StringVar(&cluster.Role, "role-arn", "", "role that the workers assume (default: their own credentials)")
	flags.StringVar(&cluster.Image, "image", "registry.k8s.io/pause", "image that the cluster can pull, without a tag")
	flags.StringArrayVar(&cluster.Subnets, "subnet", nil, "subnet of the task, which runs it on Fargate (repeatable)")
	flags.BoolVar(&cluster.Public, "public-ip", false, "with --subnet: give the task a public address, if it has no other route to the registry")
	o.flags(cmd, 30*time.Minute)
	return cmd
}
