package protocol

import "time"

// PreviewInput starts a Preview workflow (`converge plan`), which asks runtimes what applies would
// change, and changes nothing: what would be applied where. The payloads and the
// definitions of the runtimes are in the store already.
type PreviewInput struct {
	Application string        `json:"application"`
	Items       []PreviewItem `json:"items"`
}

// MaxPreviewItems is how many instances one Preview workflow asks about, so that its input stays
// small; a client with more starts several.
const MaxPreviewItems = 50

// PreviewItem is one instance and what would be applied to it.
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
	// Removal: what taking the instance down would remove is asked for, and not what an apply would change.
	Removal bool `json:"removal,omitempty"`
	// Capabilities: what charts see of the runtime's cluster is asked for, and nothing of an instance.
	Capabilities bool `json:"capabilities,omitempty"`
}

// PreviewRequest asks about one instance (activity).
type PreviewRequest struct {
	Application string        `json:"application"`
	Item        PreviewItem   `json:"item"`
	Timeout     time.Duration `json:"timeout"`
}

// Codes of a preview that has no answer. A runtime's own codes (entities.ReadingError) come too.
const (
	PreviewNoPlanner = "no-planner" // runtimes of this kind cannot say what an apply would change
	PreviewNoWorker  = "no-worker"  // nobody polls the runtime's queue
	PreviewNotReady  = "not-ready"  // the worker could not even ask: the store or the runtime is away
	PreviewTimeout   = "timeout"
	PreviewFailed    = "plan-failed"
)

// ItemPreview is what an apply would change of one instance, or why that is not known.
type ItemPreview struct {
	Service string          `json:"service"`
	Channel string          `json:"channel"`
	Changes []PreviewChange `json:"changes,omitempty"`
	Omitted int             `json:"omitted,omitempty"` // changes left out because they are too many
	Totals  PreviewTotals   `json:"totals,omitzero"`   // of all changes, those left out included
	Code    string          `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	// Removal: it says what a removal would take down. A worker of an earlier version answers such a question as if an apply
	// were meant, and does not say this.
	Removal bool `json:"removal,omitempty"`
	// Capabilities of the cluster, where these were asked for.
	Capabilities *Capabilities `json:"capabilities,omitempty"`
}

// Capabilities are what charts see of a cluster.
type Capabilities struct {
	KubeVersion string              `json:"kubeVersion"`
	APIs        map[string][]string `json:"apis"` // kinds by GROUP/VERSION
}

// PreviewTotals counts objects by what would happen to them. An object with conflicts counts as
// changed too.
type PreviewTotals struct {
	Changed   int `json:"changed"` // created, updated, recreated, or refused
	Removed   int `json:"removed"`
	Orphaned  int `json:"orphaned"`
	Conflicts int `json:"conflicts"` // objects with fields that belong to somebody else
	Refused   int `json:"refused"`   // objects that the server refuses for another reason
}

// Add returns the sum of both.
func (t PreviewTotals) Add(o PreviewTotals) PreviewTotals {
	return PreviewTotals{
		Changed: t.Changed + o.Changed, Removed: t.Removed + o.Removed, Orphaned: t.Orphaned + o.Orphaned,
		Conflicts: t.Conflicts + o.Conflicts, Refused: t.Refused + o.Refused,
	}
}

// PreviewChange is what an apply would do to one object (runtimes.Change).
type PreviewChange struct {
	Action    string         `json:"action"` // create, update, recreate, prune, orphan, refuse; of a removal: remove, keep, refuse
	Type      string         `json:"objectType"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace,omitempty"`
	Fields    []PreviewField `json:"fields,omitempty"`
	More      int            `json:"moreFields,omitempty"` // fields left out because they are too many
	Conflicts []string       `json:"conflicts,omitempty"`
	Message   string         `json:"message,omitempty"`
}

// PreviewField is one field that would change. Old and New are JSON, cut when long, empty when
// absent.
type PreviewField struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// PreviewAnswer is what a Preview workflow, or its activity, answers: the items in the order asked,
// as they are when that is small, packed when it is not.
type PreviewAnswer struct {
	Items  []ItemPreview `json:"items,omitempty"`
	Packed Packed        `json:"packed,omitempty"`
}

// maxPreview bounds an answer, packed, in bytes. As JSON it grows by a third, and no payload passes
// 64 KiB.
const maxPreview = 45 << 10

// PackPreview makes the answer. When it would be too large even packed, every item keeps fewer of its
// changes, the first ones, and says how many it left out.
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

// Previews are the items of an answer, whichever way it came.
func (a PreviewAnswer) Previews() ([]ItemPreview, error) {
	if a.Packed == nil {
		return a.Items, nil
	}
	var items []ItemPreview
	err := a.Packed.Unpack(&items)
	return items, err
}
