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

// join makes sure that a store and a namespace belong together, and returns the record of what they belong to. An empty
// store begins an installation. A store that belongs to another namespace, or to one of that name on another server, is
// refused: what it says would be started there, and applied, a second time. With o.TakeOver it is moved here instead: the
// epoch is raised, and workers where it was are refused from then on (F4). An owner takes its own store along without being
// told, and nobody else's: a store that others work from is not taken from them by starting `converge dev` beside it.
func join(ctx context.Context, c client.Client, s *store.Store, o Options) (protocol.Installation, error) {
	here, err := newInstallation(ctx, c, o)
	if err != nil {
		return here, err
	}
	if archive, err := s.Importing(ctx); err != nil || archive != "" {
		return protocol.Installation{}, cmp.Or(err, error(&HalfImportedError{s.URL()}))
	}
	stands, err := s.Installation(ctx)
	if err != nil && !store.IsNotFound(err) {
		return stands, err
	}
	if err := agree(ctx, c, s, stands, here, o); err != nil {
		return stands, err
	}
	if stands.ID == "" {
		if stands, err = s.CreateInstallation(ctx, here); err != nil {
			return stands, err
		}
	}
	if stands.NamespaceID == here.NamespaceID && stands.Exported == "" {
		return stands, nil
	}
	return takeOver(ctx, s, stands, here, o)
}

// newInstallation is the record of one that begins in a namespace.
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

// takeOver moves the installation that a store belongs to here, if that is wanted.
func takeOver(ctx context.Context, s *store.Store, stands, here protocol.Installation, o Options) (protocol.Installation, error) {
	if own := o.Owner != "" && o.Owner == stands.By && stands.Exported == ""; !own && !o.TakeOver {
		return stands, &ElsewhereError{Store: s.URL(), Installation: stands, Namespace: here.Namespace, NamespaceID: here.NamespaceID}
	}
	var err error
	here.ID, here.Epoch, here.BackupOf = stands.ID, stands.Epoch+1, stands.BackupOf
	if stands, err = s.CreateInstallation(ctx, here); err == nil && (stands.NamespaceID != here.NamespaceID || stands.Exported != "") {
		err = fmt.Errorf("the store %s was moved by somebody else just now, to the namespace %s (%s)", s.URL(), stands.Namespace, stands.NamespaceID)
	}
	return stands, err
}

// agree refuses a store whose installation, if it has one, is not that of the namespace, if that has one.
func agree(ctx context.Context, c client.Client, s *store.Store, stands, here protocol.Installation, o Options) error {
	d, err := c.DescribeWorkflowExecution(ctx, protocol.InstallationID(), "")
	var none *serviceerror.NotFound
	if errors.As(err, &none) || err == nil && d.GetWorkflowExecutionInfo().GetCloseTime() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("installation of the namespace %s: %w", here.Namespace, err)
	}
	memo := d.GetWorkflowExecutionInfo().GetMemo().GetFields()
	e := &DisagreeError{Store: s.URL(), Installation: stands.ID, Namespace: here.Namespace}
	for name, into := range map[string]*string{activities.MemoInstallation: &e.Other, activities.MemoStore: &e.OtherStore} {
		if err := o.Payloads.Read(&commonpb.Payloads{Payloads: []*commonpb.Payload{memo[name]}}, into); err != nil {
			return fmt.Errorf("memo of the workflow %s: %w", protocol.InstallationID(), err)
		}
	}
	if e.Other == stands.ID {
		return nil
	}
	return e
}

// DisagreeError says that a namespace belongs to another installation than a store.
type DisagreeError struct {
	Store, Installation          string // of the store; empty: it belongs to none yet
	Namespace, Other, OtherStore string
}

// Error names both, and what to do.
func (e *DisagreeError) Error() string {
	whose := "the installation " + e.Installation
	if e.Installation == "" {
		whose = "no installation yet"
	}
	return fmt.Sprintf("the namespace %s belongs to the installation %s, whose store is %s; the store %s belongs to %s: nothing was started; "+
		"name the other store, or fill this one from a backup: converge admin import --restore. To begin anew, terminate the workflow %s first [disagree]",
		e.Namespace, e.Other, e.OtherStore, e.Store, whose, protocol.InstallationID())
}

// ElsewhereError says that a store belongs to another Temporal namespace.
type ElsewhereError struct {
	Store                  string
	Installation           protocol.Installation
	Namespace, NamespaceID string // asked for
}

// Error names both, and what to do.
func (e *ElsewhereError) Error() string {
	if who := e.Installation.Exported; who != "" {
		return fmt.Sprintf("the installation %s of the store %s was exported by %s at %s, to go on elsewhere: nothing was started; "+
			"if it was never imported, go on with it here with --take-over [exported]",
			e.Installation.ID, e.Store, who, e.Installation.At.Format(time.RFC3339))
	}
	return fmt.Sprintf("the store %s belongs to the namespace %s (%s), installation %s, not to %s (%s): nothing was started; "+
		"connect to that one, name another store, or, if that one is gone or was stopped for good, move the installation here with --take-over [elsewhere]",
		e.Store, e.Installation.Namespace, e.Installation.NamespaceID, e.Installation.ID, e.Namespace, e.NamespaceID)
}

// HalfImportedError says that a store is being filled, or that filling it was cut off.
type HalfImportedError struct{ Store string }

// Error says what to do.
func (e *HalfImportedError) Error() string {
	return fmt.Sprintf("an archive is being imported into the store %s, or that was cut off: nothing was started; "+
		"wait for it, or run the same converge admin import again [half-imported]", e.Store)
}
