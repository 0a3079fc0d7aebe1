package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// join makes sure that a store and a namespace belong together, and returns the record of their installation. An empty store starts an
// installation. A store that belongs to another namespace, or to one of that name on another server, is refused: its workflows would be
// started, and their releases applied, a second time. With o.TakeOver it is moved here instead: the epoch is raised, and workers at the
// previous location are refused from then on (F4). An empty store whose data was lost belongs again to the installation that it had. An
// owner moves its own store without the option, but not a store of others: to start `converge dev` with a store that other workers use does
// not take it from them.
func join(ctx context.Context, c client.Client, s *store.Store, o Options) (protocol.Installation, error) {
	candidate, err := newInstallation(ctx, c, o)
	if err != nil {
		return candidate, err
	}
	if archive, err := s.Importing(ctx); err != nil || archive != "" {
		return protocol.Installation{}, cmp.Or(err, error(&HalfImportedError{s.URL()}))
	}
	recorded, err := s.Installation(ctx)
	if err != nil && !store.IsNotFound(err) {
		return recorded, err
	}
	if err := agree(ctx, c, s, recorded, &candidate, o); err != nil {
		return recorded, err
	}
	if recorded.ID == "" {
		if recorded, err = s.CreateInstallation(ctx, candidate); err != nil {
			return recorded, err
		}
	}
	if recorded.NamespaceID == candidate.NamespaceID && recorded.Exported == "" {
		return recorded, nil
	}
	return takeOver(ctx, s, recorded, candidate, o)
}

// newInstallation is the record of an installation that starts in a namespace.
func newInstallation(ctx context.Context, c client.Client, o Options) (protocol.Installation, error) {
	namespace := cmp.Or(o.Namespace, client.DefaultNamespace)
	d, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return protocol.Installation{}, fmt.Errorf("namespace %s: %w", namespace, err)
	}
	return protocol.Installation{
		ID: rand.Text(), Epoch: 1, Namespace: namespace, NamespaceID: d.GetNamespaceInfo().GetId(), At: time.Now().UTC(), By: o.Owner,
	}, nil
}

// takeOver moves the installation of a store here, if that is allowed.
func takeOver(ctx context.Context, s *store.Store, recorded, candidate protocol.Installation, o Options) (protocol.Installation, error) {
	if own := o.Owner != "" && o.Owner == recorded.By && recorded.Exported == ""; !own && !o.TakeOver {
		return recorded, &ElsewhereError{Store: s.URL(), Installation: recorded, Namespace: candidate.Namespace, NamespaceID: candidate.NamespaceID}
	}
	var err error
	candidate.ID, candidate.Epoch, candidate.BackupOf = recorded.ID, recorded.Epoch+1, recorded.BackupOf
	if recorded, err = s.CreateInstallation(ctx, candidate); err == nil && (recorded.NamespaceID != candidate.NamespaceID || recorded.Exported != "") {
		err = fmt.Errorf("the store %s was moved by another caller just now, to the namespace %s (%s)", s.URL(), recorded.Namespace, recorded.NamespaceID)
	}
	return recorded, err
}

// namespaceInstallation is the installation of a namespace, from the memo of its workflow.
type namespaceInstallation struct {
	id, store string // none: ""
	epoch     int64
}

// installationOf reads the installation of a namespace.
func installationOf(ctx context.Context, c client.Client, namespace string, o Options) (namespaceInstallation, error) {
	d, err := c.DescribeWorkflowExecution(ctx, protocol.InstallationID(), "")
	var none *serviceerror.NotFound
	if errors.As(err, &none) || err == nil && d.GetWorkflowExecutionInfo().GetCloseTime() != nil {
		return namespaceInstallation{}, nil
	}
	if err != nil {
		return namespaceInstallation{}, fmt.Errorf("installation of the namespace %s: %w", namespace, err)
	}
	memo := d.GetWorkflowExecutionInfo().GetMemo().GetFields()
	var found namespaceInstallation
	for name, target := range map[string]any{activities.MemoInstallation: &found.id, activities.MemoStore: &found.store, activities.MemoEpoch: &found.epoch} {
		if err := o.Payloads.Read(&commonpb.Payloads{Payloads: []*commonpb.Payload{memo[name]}}, target); err != nil {
			return namespaceInstallation{}, fmt.Errorf("memo of the workflow %s: %w", protocol.InstallationID(), err)
		}
	}
	return found, nil
}

// agree refuses a store that belongs to another installation than the namespace. If the store lost its data, the new record is that of the
// installation that it had.
func agree(ctx context.Context, c client.Client, s *store.Store, recorded protocol.Installation, candidate *protocol.Installation, o Options) error {
	existing, err := installationOf(ctx, c, candidate.Namespace, o)
	if err != nil {
		return err
	}
	switch lost := recorded.ID == "" && existing.store == s.URL(); {
	case existing.id == "" || existing.id == recorded.ID:
	case lost && o.TakeOver:
		candidate.ID, candidate.Epoch = existing.id, max(1, existing.epoch) // a client that may start workflows could have written it
	default:
		return &DisagreeError{
			Store: s.URL(), Installation: recorded.ID, Namespace: candidate.Namespace, Other: existing.id, OtherStore: existing.store, Lost: lost,
		}
	}
	return nil
}

// DisagreeError means that a namespace belongs to another installation than a store.
type DisagreeError struct {
	Store, Installation          string // of the store; empty if it belongs to none yet
	Namespace, Other, OtherStore string
	Lost                         bool // the store is that of the namespace's installation, and empty
}

// Error names both, and the remedy.
func (e *DisagreeError) Error() string {
	if e.Lost {
		return fmt.Sprintf("the namespace %s belongs to the installation %s, whose store %s has lost its data: nothing was started; restore it from a backup: "+
			"converge admin import --restore. Without one, continue with the state in Temporal: converge worker --take-over, converge config publish for each application, and converge release of the running versions [disagree]",
			e.Namespace, e.Other, e.Store)
	}
	whose := "the installation " + e.Installation
	if e.Installation == "" {
		whose = "no installation yet"
	}
	return fmt.Sprintf("the namespace %s belongs to the installation %s, whose store is %s; the store %s belongs to %s: nothing was started; "+
		"use the other store, or restore this one from a backup: converge admin import --restore. To start a new installation, terminate the workflow %s first [disagree]",
		e.Namespace, e.Other, e.OtherStore, e.Store, whose, protocol.InstallationID())
}

// ElsewhereError means that a store belongs to another Temporal namespace.
type ElsewhereError struct {
	Store                  string
	Installation           protocol.Installation
	Namespace, NamespaceID string // the requested one
}

// Error names both, and the remedy.
func (e *ElsewhereError) Error() string {
	if who := e.Installation.Exported; who != "" {
		return fmt.Sprintf("the installation %s of the store %s was exported by %s at %s, to continue elsewhere: nothing was started; "+
			"if it was never imported, continue here with --take-over [exported]",
			e.Installation.ID, e.Store, who, e.Installation.At.Format(time.RFC3339))
	}
	return fmt.Sprintf("the store %s belongs to the namespace %s (%s), installation %s, not to %s (%s): nothing was started; "+
		"connect to that one, use another store, or, if that one is gone or was stopped permanently, move the installation here with --take-over [elsewhere]",
		e.Store, e.Installation.Namespace, e.Installation.NamespaceID, e.Installation.ID, e.Namespace, e.NamespaceID)
}

// HalfImportedError means that an import into a store is running or was interrupted.
type HalfImportedError struct{ Store string }

// Error describes the remedy.
func (e *HalfImportedError) Error() string {
	return fmt.Sprintf("an import into the store %s is running or was interrupted: nothing was started; "+
		"wait for it, or run the same converge admin import again [half-imported]", e.Store)
}
