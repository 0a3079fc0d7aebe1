package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/view"
)

// This file keeps the Temporal UI's details and the search attributes (docs/protocol.md) up to date.
//
// Display never breaks a replay. A change of an attribute is an event, so the values are recorded first, and a replay uses the recorded
// values even if its code would compute others. Details write no history.

// Search attributes that a Service keeps up to date.
var (
	attrService    = temporal.NewSearchAttributeKeyKeyword(protocol.AttrService)
	attrStatus     = temporal.NewSearchAttributeKeyKeyword(protocol.AttrStatus)
	attrVersion    = temporal.NewSearchAttributeKeyKeyword(protocol.AttrVersion)
	attrWaitingFor = temporal.NewSearchAttributeKeyKeywordList(protocol.AttrWaitingFor)
	attrChanged    = temporal.NewSearchAttributeKeyTime(protocol.AttrChanged)
)

// uiState is the displayed state.
type uiState struct {
	details string
	attributes
}

// attributes are the values of the search attributes, as they are recorded.
type attributes struct {
	Status     string   `json:"status,omitempty"`
	Version    string   `json:"version,omitempty"`
	WaitingFor []string `json:"waitingFor,omitempty"`
	// Service is the current name of the service; "" if it still has its first name.
	Service string `json:"service,omitempty"`
}

func (a attributes) equal(b attributes) bool {
	return a.Service == b.Service && a.Status == b.Status && a.Version == b.Version && slices.Equal(a.WaitingFor, b.WaitingFor)
}

// uiStateOf computes the displayed state.
func uiStateOf(s *state.State, d *decide.Decision) uiState {
	status := view.Of(s, d)
	now := attributes{Status: status.Status, Version: status.Version, WaitingFor: view.WaitingFor(d)}
	if status.Key != "" {
		now.Service = status.Service
	}
	return uiState{explain.Markdown(status), now}
}

const (
	// attributesDelay is how long the attributes may be outdated after an apply begins.
	attributesDelay = 5 * time.Second
	// attributesDelayPerRelease is added for each other release that started recently, up to maxAttributesDelay. Many releases share the same
	// workers and take longer, and to show and follow each of them costs work too.
	attributesDelayPerRelease = 100 * time.Millisecond
	maxAttributesDelay        = time.Minute
)

// releaseLoad is how many other releases the worker has seen start recently, and when it reported that.
type releaseLoad struct {
	others int
	at     time.Time
}

// attributesDelay is the delay until progress is shown, and followed by more than hints.
func (s *service) attributesDelay() time.Duration {
	if s.now().Sub(s.releaseLoad.at) > maxAttributesDelay {
		return attributesDelay
	}
	return min(attributesDelay+time.Duration(s.releaseLoad.others)*attributesDelayPerRelease, maxAttributesDelay)
}

// deferAttributes reports whether an apply begins and the attributes are updated in a later task. Otherwise the server would write them,
// and index them for search, before it hands out the apply; an apply that ends within the delay need not be shown at all.
func (s *service) deferAttributes(applyStarting bool) bool {
	by := s.attributesTimer.at
	switch {
	case applyStarting && by.IsZero():
		by = s.now().Add(s.attributesDelay())
	case !applyStarting && !s.applying():
		by = time.Time{}
	}
	s.setTimer(&s.attributesTimer, by, func(time.Time) string { return "update search attributes" })
	return !by.IsZero()
}

// applying reports whether an apply is running.
func (s *service) applying() bool {
	for _, i := range s.state.Instances {
		if i.Delivery.Apply.Running {
			return true
		}
	}
	return false
}

// show shows what changed since the last call. applyStarting: an apply starts now.
func (s *service) show(applyStarting bool) {
	now, ok := s.computeUI()
	if ok && now.details != s.shownUI.details {
		workflow.SetCurrentDetails(s.ctx, now.details)
		s.shownUI.details = now.details
	}
	if s.readyToEnd() && !s.state.FullyRemoved() || s.deferAttributes(applyStarting) {
		return
	}
	attributes := s.uiAttributes(now.attributes)
	var updates []temporal.SearchAttributeUpdate
	if attributes.Service != s.shownUI.Service {
		updates = append(updates, attrService.ValueSet(cmp.Or(attributes.Service, s.service)))
	}
	if attributes.Status != s.shownUI.Status {
		updates = append(updates, attrStatus.ValueSet(attributes.Status))
	}
	if attributes.Version != s.shownUI.Version {
		updates = append(updates, attrVersion.ValueSet(attributes.Version))
	}
	if !slices.Equal(attributes.WaitingFor, s.shownUI.WaitingFor) {
		updates = append(updates, attrWaitingFor.ValueSet(attributes.WaitingFor))
	}
	s.shownUI.attributes = attributes
	if len(updates) > 0 {
		updates = append(updates, attrChanged.ValueSet(s.now())) // so that clients can list what has changed
		if err := workflow.UpsertTypedSearchAttributes(s.ctx, updates...); err != nil {
			workflow.GetLogger(s.ctx).Error("search attributes not updated", "error", err)
		}
	}
}

// computeUI computes the displayed state. A panic there leaves the previous display in place; it never stops the service.
func (s *service) computeUI() (now uiState, ok bool) {
	defer func() {
		if recovered := recover(); recovered != nil {
			workflow.GetLogger(s.ctx).Error("display not updated", "error", fmt.Sprint(recovered))
			now, ok = s.shownUI, false
		}
	}()
	return s.view(s.state, s.decision), true
}

// uiAttributes returns the recorded attributes in a replay, and otherwise records and returns now.
func (s *service) uiAttributes(now attributes) attributes {
	recorded := workflow.MutableSideEffect(s.ctx, "shown",
		func(workflow.Context) any { return now },
		func(a, b any) bool { return a.(attributes).equal(b.(attributes)) })
	if err := recorded.Get(&now); err != nil {
		panic(fmt.Sprintf("recorded search attributes of %s: %s", s.name, err))
	}
	return now
}
