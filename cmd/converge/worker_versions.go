package main

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/worker/deployment"
)

func newCmdAdminWorker(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "worker",
		Short:   "The workers of the installation: their versions",
		Long:    "Inspect the workers of the installation. To run one: converge worker.",
		Example: `  converge admin worker versions`,
	}
	cmd.AddCommand(newCmdWorkerVersions(f, nil))
	return cmd
}

type workerVersionsOptions struct{ f *Factory }

func newCmdWorkerVersions(f *Factory, runF func(context.Context, *workerVersionsOptions) error) *cobra.Command {
	o := &workerVersionsOptions{f}
	return &cobra.Command{
		Use:   "versions",
		Short: "List the versions of workers, and the workflows that each holds",
		Long: `List the versions of the workers that serve the namespace or hold workflows: the one that
gets new workflows is current, POLLED is when a worker of it last asked for work, and
WORKFLOWS is how many running workflows are pinned to it. A version without workflows can
be stopped. Workers without a build id have no version, and any of them runs every
workflow.`,
		Example: `  converge admin worker versions
  converge admin worker versions --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
}

func (o *workerVersionsOptions) run(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	c, namespace := api.Temporal()
	all, err := deployment.Namespace{Client: c, Name: namespace}.Serving(ctx)
	if err != nil {
		return err
	}
	if o.f.structured() {
		return o.f.screen().Document(all)
	}
	if len(all) == 0 {
		o.f.note("no worker has polled the namespace %s; start one: converge worker", namespace)
	}
	t := show.Table{Header: []string{"DEPLOYMENT", "BUILD", "CURRENT", "POLLED", "WORKFLOWS"}, Right: 5}
	for _, v := range all {
		t.Rows = append(t.Rows, workerVersionRow(v, o.f.Now()))
	}
	return o.f.screen().Table(t)
}

func workerVersionRow(v deployment.Serving, now time.Time) []string {
	row := []string{cmp.Or(v.Deployment, "-"), cmp.Or(v.Build, "-"), "", "-", "-"}
	if v.Current {
		row[2] = "yes"
	}
	if !v.Polled.IsZero() {
		row[3] = explain.Duration(now.Sub(v.Polled)) + " ago"
	}
	if v.Deployment != "" {
		row[4] = strconv.FormatInt(v.Workflows, 10)
	}
	return row
}
