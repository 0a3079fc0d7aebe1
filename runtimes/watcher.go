package runtimes

import "context"

// Owner says whose an object is.
type Owner struct{ Application, Service, Channel string }

// Watcher is a runtime that learns of changes by itself, so that polling is only the safety net.
type Watcher interface {
	// Watch calls hint whenever something that Observe reports of an instance may have changed: soon,
	// from any goroutine, many times for one change, sometimes for none, and not for what was there
	// when the watch began. hint returns quickly. A lost hint costs time and never correctness: the
	// next look finds out. Watch returns at once and goes on until stop is called.
	Watch(hint func(Owner)) (stop func())
}

// Planner is a runtime that can say what an apply would change.
type Planner interface {
	// Plan asks the runtime what Apply of the same instance would change, and changes nothing. Objects
	// that would stay as they are are left out. An error means that nothing is known.
	Plan(ctx context.Context, in Instance) ([]Change, error)
}

// Change is what an apply would do to one object.
type Change struct {
	Action    Action        `json:"action"`
	Type      string        `json:"objectType"` // Deployment
	Name      string        `json:"name"`
	Namespace string        `json:"namespace,omitempty"`
	Fields    []FieldChange `json:"fields,omitempty"` // of an update, by path
	// Conflicts say why the object would be refused: who owns what.
	Conflicts []string `json:"conflicts,omitempty"`
	// Message is what the server said of it, when it would refuse the object for another reason.
	Message string `json:"message,omitempty"`
}

// Action is what would happen to an object.
type Action string

// The actions.
const (
	ActionCreate   Action = "create"
	ActionUpdate   Action = "update"
	ActionRecreate Action = "recreate" // deleted and made again
	ActionPrune    Action = "prune"    // no longer declared, removed
	ActionOrphan   Action = "orphan"   // no longer declared, left in place
	ActionRefuse   Action = "refuse"   // not applied: Conflicts or Message say why
)

// FieldChange is one field that an update would change. Old and New are JSON, empty when absent;
// values of Secrets are never shown.
type FieldChange struct {
	Path string `json:"path"` // spec.template.spec.containers[name=web].image
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Remover is a runtime that can take an instance down (A24).
type Remover interface {
	// Remove takes away everything that Apply made for the instance, and nothing else, and returns when
	// it is gone. It is idempotent: what is gone already is no error. in holds the last target that was
	// applied; without a payload nothing was, and nothing is to be done. An error means that something
	// may still be there; one wrapped by Permanent is not retried. Remove returns when ctx ends.
	Remove(ctx context.Context, in Instance) error
}
