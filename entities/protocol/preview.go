package protocol

import "time"

// PreviewInput starts a Preview workflow (`converge plan`). It asks runtimes what applies would change, and changes nothing. The payloads
// and the definitions of the runtimes are already in the store.
type PreviewInput struct {
	Application string        `json:"application"`
	Items       []PreviewItem `json:"items"`
}

// MaxPreviewItems is the maximum number of instances in one Preview workflow, so that its input stays small. A client with more instances
// starts several.
const MaxPreviewItems = 50

// PreviewItem is one instance and the payload to apply to it.
type PreviewItem struct {
	Service       string `json:"service"`
	ServiceID     string `json:"serviceId"`
	Channel       string `json:"channel"`
	Instance      string `json:"instance,omitempty"` // its name in the channel; empty: the only one
	Runtime       string `json:"runtime"`
	RuntimeDigest string `json:"runtimeDigest"`
	Remote        bool   `json:"remote,omitempty"`
	FullVersion   string `json:"fullVersion"`
	Payload       string `json:"payload"` // digest in the store
	// Incarnation is the hash of the incarnation to plan, if that is not the newest one.
	Incarnation string `json:"incarnation,omitempty"`
	// Removal: the question is what a removal of the instance would remove, and not what an apply would change.
	Removal bool `json:"removal,omitempty"`
	// Capabilities: the question is about the capabilities of the runtime's cluster for charts, not about an instance.
	Capabilities bool `json:"capabilities,omitempty"`
}

// PreviewRequest is a question about one instance (activity).
type PreviewRequest struct {
	Application string        `json:"application"`
	Item        PreviewItem   `json:"item"`
	Timeout     time.Duration `json:"timeout"`
}

// Codes of a preview without an answer. Codes of runtimes (entities.ReadingError) also occur.
const (
	PreviewNoPlanner = "no-planner" // runtimes of this kind cannot say what an apply would change
	PreviewNoWorker  = "no-worker"  // no worker polls the runtime's queue
	PreviewNotReady  = "not-ready"  // the worker could not send the question: the store or the runtime is unavailable
	PreviewTimeout   = "timeout"
	PreviewFailed    = "plan-failed"
)

// ItemPreview is what an apply would change for one instance, or why that is unknown.
type ItemPreview struct {
	Service string          `json:"service"`
	Channel string          `json:"channel"`
	Changes []PreviewChange `json:"changes,omitempty"`
	Omitted int             `json:"omitted,omitempty"` // changes left out because there are too many
	Totals  PreviewTotals   `json:"totals,omitzero"`   // of all changes, including those left out
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	// Removal: it says what a removal would remove.
	Removal bool `json:"removal,omitempty"`
	// Capabilities of the cluster, if these were requested.
	Capabilities *Capabilities `json:"capabilities,omitempty"`
}

// Capabilities are the facts about a cluster that charts see.
type Capabilities struct {
	KubeVersion string              `json:"kubeVersion"`
	APIs        map[string][]string `json:"apis"` // kinds by GROUP/VERSION
}

// PreviewTotals counts objects by their changes. An object with conflicts counts as changed too.
type PreviewTotals struct {
	Changed   int `json:"changed"` // created, updated, recreated, or refused
	Removed   int `json:"removed"`
	Orphaned  int `json:"orphaned"`
	Conflicts int `json:"conflicts"` // objects with fields of another owner
	Refused   int `json:"refused"`   // objects that the server refuses for another reason
}

// Add returns the sum of both.
func (t PreviewTotals) Add(o PreviewTotals) PreviewTotals {
	return PreviewTotals{
		Changed: t.Changed + o.Changed, Removed: t.Removed + o.Removed, Orphaned: t.Orphaned + o.Orphaned,
		Conflicts: t.Conflicts + o.Conflicts, Refused: t.Refused + o.Refused,
	}
}

// PreviewChange is the change that an apply would make to one object (runtimes.Change).
type PreviewChange struct {
	Action    string         `json:"action"` // create, update, recreate, prune, orphan, refuse; of a removal: remove, keep, refuse
	Type      string         `json:"objectType"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace,omitempty"`
	Fields    []PreviewField `json:"fields,omitempty"`
	More      int            `json:"moreFields,omitempty"` // fields left out because there are too many
	Conflicts []string       `json:"conflicts,omitempty"`
	Message   string         `json:"message,omitempty"`
	// Replaces says that the change replaces the running pods or tasks of the object; nil: it does not.
	Replaces *PreviewReplacement `json:"replaces,omitempty"`
}

// PreviewReplacement is the replacement of the pods or tasks of an object, and its reason.
type PreviewReplacement struct {
	What string `json:"what"` // pods, tasks
	Why  string `json:"why"`
}

// PreviewField is one field that would change. Old and New are JSON, shortened when long, empty when absent.
type PreviewField struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// PreviewAnswer is the answer of a Preview workflow, or of its activity: the items in the order of the request, plain if small and packed
// if not.
type PreviewAnswer struct {
	Items  []ItemPreview `json:"items,omitempty"`
	Packed Packed        `json:"packed,omitempty"`
}

// maxPreview is the maximum size of a packed answer, in bytes. As JSON it grows by a third, and no payload exceeds 64 KiB.
const maxPreview = 45 << 10

// PackPreview builds the answer. If it would be too large even when packed, every item keeps only the first of its changes, and counts the
// omitted ones.
func PackPreview(items []ItemPreview) (PreviewAnswer, error) {
	if !Large(items) {
		return PreviewAnswer{Items: items}, nil
	}
	keep := 0
	for _, i := range items {
		keep = max(keep, len(i.Changes))
	}
	for {
		packed, err := Pack(items)
		if err != nil || len(packed) <= maxPreview || keep == 0 {
			return PreviewAnswer{Packed: packed}, err
		}
		keep /= 2
		items = firstChanges(items, keep)
	}
}

func firstChanges(items []ItemPreview, keep int) []ItemPreview {
	out := make([]ItemPreview, 0, len(items))
	for _, i := range items {
		if cut := len(i.Changes) - keep; cut > 0 {
			i.Changes, i.Omitted = i.Changes[:keep], i.Omitted+cut
		}
		out = append(out, i)
	}
	return out
}

// Previews returns the items of an answer, plain or packed.
func (a PreviewAnswer) Previews() ([]ItemPreview, error) {
	if a.Packed == nil {
		return a.Items, nil
	}
	var items []ItemPreview
	err := a.Packed.Unpack(&items)
	return items, err
}
