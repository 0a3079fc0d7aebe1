// Package collect keeps a store small: it removes content that neither the store's own records nor any history in Temporal references
// (docs/backup.md, The store is kept small). The store knows the references; this package reads histories, and refuses a store that
// belongs to another installation, whose histories are elsewhere.
package collect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// Collector collects the garbage of a store.
type Collector struct {
	Client    client.Client
	Namespace string
	Store     *store.Store
	// Payloads is the codec of the client. Nil: no encryption.
	Payloads *codec.Codec
	store.Collection
}

// maxConcurrentHistories is how many histories are read in parallel.
const maxConcurrentHistories = 8

// Run collects once. It changes nothing if anything that may reference content cannot be read.
func (c Collector) Run(ctx context.Context) ([]store.CollectedKind, error) {
	if err := c.checkOwnership(ctx); err != nil {
		return nil, err
	}
	known, _, err := c.Store.PayloadKeys(ctx)
	if err != nil {
		return nil, err
	}
	if c.Payloads == nil {
		c.Payloads = &codec.Codec{}
	}
	c.Payloads.SetKnown(known)
	if c.Now.IsZero() {
		c.Now = time.Now()
	}
	c.Texts = c.histories
	return c.Store.Collect(ctx, c.Collection)
}

// checkOwnership refuses a store whose workflows are not in this namespace: their references are not known here.
func (c Collector) checkOwnership(ctx context.Context) error {
	i, err := c.Store.Installation(ctx)
	if store.IsNotFound(err) {
		return fmt.Errorf("the store %s belongs to no installation yet: no worker has used it [no-installation]", c.Store.URL())
	}
	if err != nil {
		return err
	}
	importing, err := c.Store.Importing(ctx)
	if err != nil {
		return err
	}
	d, err := c.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: c.Namespace})
	switch {
	case err != nil:
		return fmt.Errorf("describe namespace %s: %w", c.Namespace, err)
	case i.Exported != "":
		return fmt.Errorf("the installation of the store %s was exported by %s: the references to its content are elsewhere [exported]", c.Store.URL(), i.Exported)
	case importing != "":
		return fmt.Errorf("an import of an archive into the store %s is in progress or was interrupted; import it again first [importing]", c.Store.URL())
	case i.NamespaceID != d.GetNamespaceInfo().GetId():
		return fmt.Errorf("the store %s belongs to namespace %s (%s), and this is %s (%s): the references to its content are there [other-namespace]",
			c.Store.URL(), i.Namespace, i.NamespaceID, c.Namespace, d.GetNamespaceInfo().GetId())
	}
	return nil
}

// run identifies a run of a workflow.
type run struct{ id, runID string }

// convergeWorkflows selects the workflows whose histories reference the store, including ended ones that the server still has.
var convergeWorkflows = "WorkflowType IN ('" + strings.Join([]string{
	protocol.ServiceWorkflow, protocol.ApplicationWorkflow, protocol.RuntimeWorkflow, protocol.InstallationWorkflow, protocol.PlanWorkflow, protocol.PreviewWorkflow,
}, "','") + "')"

// histories passes all payloads of the histories of all runs to emit: the runs that the server lists, and the current run of each workflow
// with a checkpoint, which the list may not have.
func (c Collector) histories(ctx context.Context, emit func(string, []byte) error) error {
	runs, err := c.listRuns(ctx)
	if err != nil {
		return err
	}
	ids, err := c.Store.Checkpointed(ctx, "")
	if err != nil {
		return err
	}
	for _, id := range ids {
		runs[run{id: id}] = true
	}
	var mu sync.Mutex
	serial := func(application string, text []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return emit(application, text)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentHistories)
	for r := range runs {
		g.Go(func() error {
			if err := c.history(ctx, r, serial); err != nil {
				return fmt.Errorf("history of %s: %w", r.id, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (c Collector) listRuns(ctx context.Context) (map[run]bool, error) {
	runs := map[run]bool{}
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.Namespace, PageSize: 1000, Query: convergeWorkflows}
	for {
		page, err := c.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list workflows of %s: %w", c.Namespace, err)
		}
		for _, e := range page.GetExecutions() {
			runs[run{e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId()}] = true
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return runs, nil
		}
	}
}

// history passes the payloads of one run to emit. A run that no longer exists references nothing.
func (c Collector) history(ctx context.Context, r run, emit func(string, []byte) error) error {
	application := store.ApplicationOfWorkflow(r.id)
	visit := proxy.VisitPayloadsOptions{Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
		for _, p := range payloads {
			text, err := c.Payloads.Plain(p)
			if err == nil {
				err = emit(application, text)
			}
			if err != nil {
				return nil, err
			}
		}
		return payloads, nil
	}}
	events := c.Client.GetWorkflowHistory(ctx, r.id, r.runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		var notFound *serviceerror.NotFound
		if errors.As(err, &notFound) {
			return nil
		}
		if err == nil {
			err = proxy.VisitPayloads(ctx, e, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
