package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// Import configures an import.
type Import struct {
	Client    client.Client
	Namespace string
	Store     *store.Store
	By        string
	// Restore accepts a backup of an installation that was lost. Actions since the backup are unknown, so everything is
	// restored paused. Without Restore only an installation that was ended where it ran before is accepted.
	Restore bool
}

// Imported is the result of an import.
type Imported struct {
	Header       Header                `json:"-"`
	Installation protocol.Installation `json:"installation"`
	Workflows    []string              `json:"workflows"` // workers start these within a minute; sorted
	// InPlace: only the store was lost; the workflows continue.
	InPlace bool `json:"inPlace,omitempty"`
}

// maxConcurrentWrites is how many objects are written to the store in parallel.
const maxConcurrentWrites = 16

// Read imports an archive into an empty store and a namespace without workflows of Converge, or into the lost or damaged store of the
// namespace that it was exported from. It overwrites nothing. The record of the installation is written last, with a higher epoch: no
// worker starts before that, and an interrupted import can be repeated.
func (i Import) Read(ctx context.Context, from io.Reader) (Imported, error) {
	r, h, err := newReader(from)
	if err != nil {
		return Imported{}, err
	}
	out := Imported{Header: h}
	if out.Installation, out.InPlace, err = i.newInstallation(ctx, h); err != nil {
		return out, err
	}
	if current, err := i.Store.BeginImport(ctx, h.ID); err != nil {
		return out, err
	} else if current != h.ID {
		return out, fmt.Errorf("another archive (%s, not %s) was being imported into the store %s and is not complete: repeat that one, or use an empty store [half-imported]", current, h.ID, i.Store.URL())
	}
	if out.Workflows, err = i.fill(ctx, r); err != nil {
		return out, err
	}
	if !out.Installation.BackupOf.IsZero() && !out.InPlace {
		if err := i.pause(ctx, h); err != nil {
			return out, err
		}
	}
	current, err := i.Store.CreateInstallation(ctx, out.Installation)
	if err != nil {
		return out, err
	}
	if current.ID != out.Installation.ID || current.NamespaceID != out.Installation.NamespaceID {
		return out, fmt.Errorf("the store %s was taken by another installation in the meantime: %s in the namespace %s [store-taken]", i.Store.URL(), current.ID, current.Namespace)
	}
	return out, i.Store.EndImport(ctx)
}

// pause pauses everything, because the actions since the backup are unknown.
func (i Import) pause(ctx context.Context, h Header) error {
	reason := fmt.Sprintf("restored from the backup of %s UTC; later changes are unknown", h.At.UTC().Format(time.DateTime))
	return i.Store.PutPause(ctx, "", protocol.ScopePause{
		Scope: entities.ScopeInstallation, Pause: &entities.Pause{Scope: entities.ScopeInstallation, By: i.By, Reason: reason, At: time.Now().UTC()},
	})
}

// newInstallation determines the new record of the installation, or why the archive cannot be imported here. The import is in place if the
// workflows of the archive still run: they have newer state. If they are gone too, the backup is the newest state.
func (i Import) newInstallation(ctx context.Context, h Header) (target protocol.Installation, inPlace bool, err error) {
	d, err := i.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: i.Namespace})
	if err != nil {
		return target, false, fmt.Errorf("namespace %s: %w", i.Namespace, err)
	}
	target = protocol.Installation{
		ID: h.Installation.ID, Epoch: h.Installation.Epoch, Namespace: i.Namespace, NamespaceID: d.GetNamespaceInfo().GetId(), At: time.Now().UTC(),
	}
	if err := i.checkStore(ctx, h); err != nil {
		return target, false, err
	}
	running := map[string]bool{}
	if err := listRunning(ctx, i.Client, i.Namespace, running); err != nil {
		return target, false, err
	}
	if !h.IsMove() {
		target.BackupOf = h.At
		if target.NamespaceID == h.Installation.NamespaceID && len(running) > 0 {
			return target, true, nil
		}
		if !i.Restore {
			return target, false, fmt.Errorf("this is a backup of an installation that may still run in the namespace %s (%s), and would apply everything a second time: "+
				"to move it use converge admin export --from; if it is lost, --restore [backup]", h.Installation.Namespace, h.Installation.NamespaceID)
		}
	}
	target.Epoch++
	if len(running) > 0 {
		return target, false, fmt.Errorf("workflows of Converge already run in the namespace %s, such as %s: import into another namespace [namespace-taken]",
			i.Namespace, slices.Sorted(maps.Keys(running))[0])
	}
	return target, false, nil
}

// checkStore refuses a store of another installation, and one in which this installation has continued since the archive was made.
func (i Import) checkStore(ctx context.Context, h Header) error {
	archive, err := i.Store.Importing(ctx)
	if err != nil || archive != "" {
		return err
	}
	current, err := i.Store.Installation(ctx)
	if store.IsNotFound(err) {
		empty, err := i.Store.Empty(ctx)
		if err == nil && !empty && !i.Restore {
			err = fmt.Errorf("the store %s is not empty; expected an empty one, or --restore to add what it lacks [store-taken]", i.Store.URL())
		}
		return err
	}
	switch {
	case err != nil:
		return err
	case current.ID != h.Installation.ID:
		return fmt.Errorf("the store %s belongs to another installation, %s in the namespace %s; expected an empty one [store-taken]", i.Store.URL(), current.ID, current.Namespace)
	case current.Exported != "" && current.Epoch == h.Installation.Epoch:
		return fmt.Errorf("the installation was exported from this store, %s: resume it here with converge worker --take-over [same-store]", i.Store.URL())
	case current.Epoch > h.Installation.Epoch:
		return fmt.Errorf("the store %s already has this installation as of %s, later than the archive (epoch %d, not %d) [outdated-archive]",
			i.Store.URL(), current.At.Format(time.RFC3339), current.Epoch, h.Installation.Epoch)
	}
	return nil
}

// fill writes the content of an archive and returns the workflows that must run.
func (i Import) fill(ctx context.Context, r *reader) ([]string, error) {
	g, writing := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrentWrites)
	workflows := map[string]bool{}
	for {
		key, data, err := r.next()
		if errors.Is(err, io.EOF) {
			return slices.Sorted(maps.Keys(workflows)), g.Wait()
		}
		if err != nil || writing.Err() != nil {
			return nil, errors.Join(err, g.Wait())
		}
		if id := workflowToContinue(key, data); id != "" {
			workflows[id] = true
		}
		g.Go(func() error { return i.Store.Restore(writing, key, data) })
	}
}

// workflowToContinue returns the workflow whose checkpoint an entry is, unless that has completed.
func workflowToContinue(key string, data []byte) string {
	var c protocol.Checkpoint
	if !strings.HasPrefix(key, "checkpoints/") || json.Unmarshal(data, &c) != nil || c.Over {
		return ""
	}
	return c.ID
}
