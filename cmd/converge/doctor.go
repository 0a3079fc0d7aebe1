package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
)

type doctorOptions struct {
	f        *Factory
	store    string
	exitCode bool
	watch    bool
}

func newCmdDoctor(f *Factory, runF func(context.Context, *doctorOptions) error) *cobra.Command {
	o := &doctorOptions{f: f}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose the server, the workers and the store",
		Long: `Examine an installation from outside, where no workflow can: whether the server answers
and the namespace is set up correctly, whether a worker polls it, which worker versions
hold workflows, what an operator pinned, which workflows fail repeatedly or were
terminated, which runtimes cannot be read, whether the store can, and whether the clock of
a worker is wrong. It writes a probe to the store and removes it, and changes nothing else.
It prints what it examined, and lists each finding with a stable code for scripts and with
what to do. What cannot be examined is a finding
too.`,
		Example: `  converge admin doctor
  converge admin doctor --watch
  converge admin doctor --exit-code --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with status 2 if there are findings")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "examine again every ten seconds, until Ctrl-C")
	return cmd
}

// doctorInterval is the time between two examinations while watching.
const doctorInterval = 10 * time.Second

func (o *doctorOptions) run(ctx context.Context) error {
	switch {
	case o.watch && o.exitCode:
		return errors.New("--exit-code cannot be combined with --watch")
	case o.watch:
		return o.follow(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, 3*connection.QueryTimeout)
	defer cancel()
	report := o.examine(bounded)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := o.write(report); err != nil {
		return err
	}
	if o.exitCode && len(report.Findings) > 0 {
		return exit(outcome.Failed)
	}
	return nil
}

// follow examines again and again.
func (o *doctorOptions) follow(ctx context.Context) error {
	live := show.NewLive(o.f.screen())
	for {
		bounded, cancel := context.WithTimeout(ctx, 3*connection.QueryTimeout)
		report := o.examine(bounded)
		cancel()
		if ctx.Err() != nil {
			return exit(exitInterrupted)
		}
		var err error
		if o.f.structured() {
			err = o.f.screen().StreamDocument(report)
		} else {
			err = live.Frame(checklist(report))
		}
		if err != nil {
			return err
		}
		if o.f.Sleep(ctx, doctorInterval) != nil {
			return exit(exitInterrupted)
		}
	}
}

// checklist is a report for people: what was examined, and each finding with its reason and the remedy below it.
func checklist(report deployment.Report) string {
	var lines []string
	for _, item := range report.Examined {
		lines = append(lines, "✓ "+item)
	}
	for _, f := range report.Findings {
		lines = append(lines, "✗ "+f.Code+": "+f.What, "    "+f.Why, "    "+f.Next)
	}
	return linesText(lines)
}

func (o *doctorOptions) examine(ctx context.Context) deployment.Report {
	api, err := o.f.client(ctx)
	if err != nil {
		report := deployment.Report{Examined: []string{}, Findings: []deployment.Finding{}}
		report.AddFinding(deployment.NoConnection, "the Temporal server", err.Error(), "check --address, --profile and the TEMPORAL_ variables of this command, and the server")
		o.examineStore(ctx, o.f.configuredStore(o.store), "", &report)
		return report
	}
	c, namespace := api.Temporal()
	report := deployment.Namespace{Client: c, Name: namespace, Attributes: worker.SearchAttributes()}.Examine(ctx)
	location, err := o.storeInUse(ctx, api)
	if err != nil {
		report.AddExamined("the store: not examined, %v", err)
		return report
	}
	d, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return report // the report contains the error
	}
	o.examineStore(ctx, location, d.GetNamespaceInfo().GetId(), &report)
	return report
}

// configuredStore returns the store of a flag or of CONVERGE_STORE.
func (f *Factory) configuredStore(flag string) string { return first(flag, f.Env("CONVERGE_STORE")) }

// storeInUse returns the configured store, otherwise the store of the first application that answers. It returns "" if no application
// reports one.
func (o *doctorOptions) storeInUse(ctx context.Context, api connection.API) (string, error) {
	if configured := o.f.configuredStore(o.store); configured != "" {
		return configured, nil
	}
	applications, err := api.Applications(ctx)
	if err != nil || len(applications) == 0 {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, connection.QueryTimeout)
	defer cancel()
	c, _ := api.Temporal()
	status, err := publish.Status(ctx, c, applications[0])
	if err != nil {
		return "", err
	}
	return o.f.stores("").Readable(status.Store)
}

// storeTimeout is the timeout for the examination of the store.
const storeTimeout = 10 * time.Second

// examineStore reads from a store which installation owns it. It does not create a missing directory.
func (o *doctorOptions) examineStore(ctx context.Context, location, namespaceID string, report *deployment.Report) {
	if location == "" {
		report.AddExamined("the store: none is configured or in use")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	next := "check the credentials and the network of this command; workers read the same store with their own"
	if path := strings.TrimPrefix(location, "file://"); !strings.Contains(path, "://") {
		if _, err := os.Stat(filepath.FromSlash(path)); err != nil {
			report.AddFinding(deployment.UnreachableStore, location, err.Error(), "name the store of the workers: --store, or CONVERGE_STORE")
			return
		}
	}
	s, err := store.Open(ctx, location)
	if err != nil {
		report.AddFinding(deployment.UnreachableStore, location, err.Error(), next)
		return
	}
	defer s.Close()
	installation, err := s.Installation(ctx)
	switch {
	case store.IsNotFound(err):
		report.AddFinding(deployment.UnreachableStore, location, "it is empty, or not a store of Converge: no worker has used it yet", "name the store of the workers, or fill this one from a backup: converge admin import --restore")
	case err != nil:
		report.AddFinding(deployment.UnreachableStore, location, err.Error(), next)
	case namespaceID != "" && installation.NamespaceID != namespaceID:
		report.AddFinding(deployment.StoreOfAnother, location, fmt.Sprintf("it belongs to the namespace %s (%s)", installation.Namespace, installation.NamespaceID),
			"name that namespace, or another store; if that namespace no longer exists: converge worker --take-over")
	default:
		if err := s.Probe(ctx); err != nil {
			report.AddFinding(deployment.UnwritableStore, location, err.Error(), "free space there, or fix the permissions; workers write with their own credentials")
		} else {
			report.AddExamined("the store %s was written and read", location)
		}
		examineClocks(ctx, s, report)
	}
}

// write writes the report: on a terminal as a checklist. In a pipe the findings are a table, and the examined items go to stderr.
func (o *doctorOptions) write(report deployment.Report) error {
	if o.f.structured() {
		return o.f.screen().Document(report)
	}
	if screen := o.f.screen(); screen.TTY {
		return screen.WriteText(checklist(report))
	}
	o.f.note("examined: %s", strings.Join(report.Examined, "; "))
	if len(report.Findings) == 0 {
		o.f.note("no findings")
		return nil
	}
	t := show.Table{Header: []string{"CODE", "WHAT", "WHY", "NEXT"}}
	for _, f := range report.Findings {
		t.Rows = append(t.Rows, []string{f.Code, f.What, f.Why, f.Next})
	}
	return o.f.screen().Table(t)
}
