package installation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// Export configures an export.
type Export struct {
	Client    client.Client
	Namespace string
	Store     *store.Store
	By        string
	// Move ends the installation here once the first byte of the archive was written: nothing is applied from here any more, its
	// workflows are terminated, and the archive includes the messages that they accepted. Without Move the archive is a backup.
	Move bool
	// Payloads is the codec of the client. Nil: no encryption.
	Payloads *codec.Codec
	// Log reports progress, for display.
	Log func(format string, args ...any)
}

// Exported is the content of an archive.
type Exported struct {
	Installation protocol.Installation
	Workflows    int // that continue from a checkpoint in it
	Messages     int // that they had accepted after their checkpoints
	// Damaged are workflows that are omitted, because all their checkpoints are damaged, with the error.
	Damaged map[string]error
}

// Write writes the archive. A move that fails halfway loses nothing: it can be repeated, or the installation continues here with
// `converge worker --take-over`.
func (e Export) Write(ctx context.Context, to io.Writer) (Exported, error) {
	i, err := e.Store.Installation(ctx)
	if store.IsNotFound(err) {
		return Exported{}, fmt.Errorf("the store %s belongs to no installation yet: no worker has used it", e.Store.URL())
	}
	if err != nil {
		return Exported{}, err
	}
	out := Exported{Installation: i}
	var missed []protocol.MissedMessages
	if e.Move {
		if out.Installation, missed, err = e.endInstallation(ctx, i); err != nil {
			return out, err
		}
	}
	w, err := newWriter(to, Header{Schema: Schema, ID: rand.Text(), At: time.Now().UTC(), By: e.By, Installation: out.Installation})
	if err != nil {
		return out, err
	}
	out.Damaged, err = e.Store.Each(ctx, func(key string, data []byte) error {
		if workflowToContinue(key, data) != "" {
			out.Workflows++
		}
		return w.add(key, data)
	})
	if err != nil {
		return out, err
	}
	for _, m := range missed {
		key, data, err := store.MissedRecord(m)
		if err == nil {
			err = w.add(key, data)
		}
		if err != nil {
			return out, err
		}
		out.Messages += len(m.Messages)
	}
	return out, w.close()
}

// endInstallation ends an installation here. Its record is marked first, so that nothing is applied or started again, and then its
// workflows are terminated. The messages that they accepted after their checkpoints are read from their histories, which are complete then.
func (e Export) endInstallation(ctx context.Context, i protocol.Installation) (protocol.Installation, []protocol.MissedMessages, error) {
	if err := e.checkCheckpoints(ctx); err != nil {
		return i, nil, err
	}
	if i.Exported == "" {
		i.Epoch, i.Exported, i.At = i.Epoch+1, e.By, time.Now().UTC()
		current, err := e.Store.CreateInstallation(ctx, i)
		if err == nil && current.Exported == "" {
			err = fmt.Errorf("the installation was just moved by another export, to the namespace %s", current.Namespace)
		}
		if err != nil {
			return i, nil, err
		}
		i = current
	}
	ended, err := e.terminate(ctx, i)
	if err != nil {
		return i, nil, err
	}
	e.log("%d workflows ended; nothing is applied from %s any more", ended, e.Store.URL())
	missed, err := e.missedMessages(ctx)
	return i, missed, err
}

// checkCheckpoints refuses to end an installation that would lose state: a workflow has no checkpoint yet, or only damaged ones.
func (e Export) checkCheckpoints(ctx context.Context) error {
	running, err := e.running(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, id := range running {
		_, err := e.Store.Checkpoint(ctx, id)
		if store.IsNotFound(err) {
			err = errors.New("it has no checkpoint; is a worker running that writes to this store?")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", id, err))
		}
	}
	return errors.Join(problems...)
}

// terminate terminates all workflows of the installation, including those that are started in the meantime.
func (e Export) terminate(ctx context.Context, i protocol.Installation) (int, error) {
	ended := map[string]bool{}
	for {
		running, err := e.running(ctx)
		if err != nil || len(running) == 0 {
			return len(ended), err
		}
		for _, id := range running {
			err := e.Client.TerminateWorkflow(ctx, id, "", "installation "+i.ID+protocol.ExportedBy+i.Exported)
			if err != nil && !isNotFound(err) {
				return len(ended), fmt.Errorf("end %s: %w", id, err)
			}
			ended[id] = true
		}
	}
}

// running are the ids of running workflows: those in the server's list, which may lag behind, and those with a checkpoint.
func (e Export) running(ctx context.Context) ([]string, error) {
	ids, err := e.Store.Checkpointed(ctx, "")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
	}
	if err := listRunning(ctx, e.Client, e.Namespace, known); err != nil {
		return nil, err
	}
	maps.DeleteFunc(known, func(id string, _ bool) bool {
		var open bool
		if err == nil {
			open, err = isOpen(ctx, e.Client, id)
		}
		return !open
	})
	return slices.Sorted(maps.Keys(known)), err
}

// missedMessages reads the messages that each workflow accepted after its checkpoint.
func (e Export) missedMessages(ctx context.Context) ([]protocol.MissedMessages, error) {
	ids, err := e.Store.Checkpointed(ctx, "")
	if err != nil {
		return nil, err
	}
	known, _, err := e.Store.PayloadKeys(ctx)
	if err != nil {
		return nil, err
	}
	if e.Payloads == nil {
		e.Payloads = &codec.Codec{}
	}
	e.Payloads.SetKnown(known)
	a := &activities.Activities{Store: e.Store, Client: e.Client, Payloads: e.Payloads}
	var all []protocol.MissedMessages
	for _, id := range ids {
		c, err := e.Store.Checkpoint(ctx, id)
		if store.IsDamaged(err) {
			continue // the archive omits it
		}
		if err != nil {
			return nil, err
		}
		messages, err := a.MissedAfter(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("history of %s: %w", id, err)
		}
		if len(messages) > 0 {
			all = append(all, protocol.MissedMessages{ID: id, After: protocol.Cursor{Run: c.Run, Event: c.Event}, Messages: messages})
		}
	}
	return all, nil
}

func (e Export) log(format string, args ...any) {
	if e.Log != nil {
		e.Log(format, args...)
	}
}

// listRunning adds the ids of the running and the paused workflows of Converge in a namespace, as far as the server's list has them.
func listRunning(ctx context.Context, c client.Client, namespace string, into map[string]bool) error {
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: namespace, PageSize: 1000, Query: protocol.OpenQuery,
	}
	for {
		page, err := c.ListWorkflow(ctx, request)
		if err != nil {
			return fmt.Errorf("list workflows of %s: %w", namespace, err)
		}
		for _, e := range page.GetExecutions() {
			into[e.GetExecution().GetWorkflowId()] = true
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nil
		}
	}
}

// isOpen reports whether a workflow runs, by its own record.
func isOpen(ctx context.Context, c client.Client, id string) (bool, error) {
	d, err := c.DescribeWorkflowExecution(ctx, id, "")
	if isNotFound(err) {
		return false, nil
	}
	return err == nil && d.GetWorkflowExecutionInfo().GetCloseTime() == nil, err
}

func isNotFound(err error) bool {
	var notFound *serviceerror.NotFound
	return errors.As(err, &notFound)
}
