package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// account is where on Amazon ECS it is tried.
type account struct {
	cluster, region, role, image string
	subnets                      []string
	public                       bool
}

func newCmdAcceptanceECS(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	o := &acceptanceOptions{f: f}
	var at account
	cmd := &cobra.Command{
		Use:   "ecs",
		Short: "Try a cluster of Amazon ECS",
		Long: `Try a cluster of Amazon ECS with a service of one task. Without --subnet the task runs on
the cluster's own instances, with it on Fargate. ECS finds out in its own time that an image
cannot be pulled: allow for a quarter of an hour.`,
		Example: `  converge acceptance ecs --cluster test --region eu-west-1
  converge acceptance ecs --cluster test --region eu-west-1 --subnet subnet-0a1b2c3d --public-ip`,
		Args: cobra.NoArgs,
		RunE: running(o, runF, o.run, func([]string) error {
			if at.cluster == "" || at.region == "" {
				return errors.New("--cluster and --region say where")
			}
			o.kind, o.values = at.of()
			if err := o.check(); err != nil {
				return err
			}
			if at.role != "" {
				o.values["ROLE"] = `, roleArn: "` + at.role + `"`
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&at.cluster, "cluster", "", "name of the cluster (required)")
	flags.StringVar(&at.region, "region", "", "its region (required)")
	flags.StringVar(&at.role, "role-arn", "", "role that the workers assume (default: their own credentials)")
	flags.StringVar(&at.image, "image", "registry.k8s.io/pause", "image that can be pulled there")
	flags.StringArrayVar(&at.subnets, "subnet", nil, "subnet of the task, which then runs on Fargate (repeatable)")
	flags.BoolVar(&at.public, "public-ip", false, "with --subnet: give the task a public address, where nothing else leads to the registry")
	o.flags(cmd, 30*time.Minute)
	return cmd
}

// of is the folder of acceptance/, and what stands for the words in capitals there.
func (a account) of() (kind string, values map[string]string) {
	values = map[string]string{"CLUSTER": a.cluster, "REGION": a.region, "IMAGE": a.image, "ROLE": a.role, "PUBLIC": "DISABLED", "SUBNETS": strings.Join(a.subnets, ", ")}
	if a.public {
		values["PUBLIC"] = "ENABLED"
	}
	if len(a.subnets) > 0 {
		return "fargate", values
	}
	return "ecs", values
}
