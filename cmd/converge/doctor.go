package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/worker/deployment"
)

type doctorOptions struct {
	f        *Factory
	exitCode bool
}

func newCmdDoctor(f *Factory, runF func(context.Context, *doctorOptions) error) *cobra.Command {
	o := &doctorOptions{f: f}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with workers and their versions",
		Long: `Look at the workers of a namespace from outside, where no workflow can tell: whether
anybody serves it, which versions of workers hold workflows, what an operator pinned, and
which workflows fail again and again. It says what it looked at, changes nothing, and
lists each finding with a code that scripts can rely on.`,
		Example: `  converge doctor
  converge doctor --exit-code --output json`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func([]string) error { return nil }),
	}
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "end with 2 when something is found")
	return cmd
}

func (o *doctorOptions) run(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	c, namespace := api.Temporal()
	ctx, cancel := context.WithTimeout(ctx, 2*queryTimeout)
	defer cancel()
	report, err := deployment.Namespace{Client: c, Name: namespace}.Examine(ctx)
	if err != nil {
		return err
	}
	if err := o.write(report); err != nil {
		return err
	}
	if o.exitCode && len(report.Findings) > 0 {
		return exit(exitFailed)
	}
	return nil
}

// write lists the findings; what was looked at is talk, and part of the JSON.
func (o *doctorOptions) write(report deployment.Report) error {
	if o.f.json() {
		return o.f.screen().JSON(report)
	}
	o.f.note("looked at %s", strings.Join(report.Looked, "; "))
	if len(report.Findings) == 0 {
		o.f.note("nothing found")
		return nil
	}
	t := show.Table{Header: []string{"CODE", "WHAT", "WHY", "NEXT"}}
	for _, f := range report.Findings {
		t.Rows = append(t.Rows, []string{f.Code, f.What, f.Why, f.Next})
	}
	return o.f.screen().Table(t)
}
