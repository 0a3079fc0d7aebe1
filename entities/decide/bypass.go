package decide

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// Bypass lets a release pass a condition of a channel (A15): the condition must be one that the release needs
// there. One that passes already is not bypassed, and the answer says so. It stands here since only the table of
// gates knows what a channel asks for; like every verb it returns its effect, and changes nothing itself.
func Bypass(s *state.State, version string, b state.Bypass) (state.Effect, error) {
	r, err := s.FindOpen(version, b.Channel)
	if err != nil {
		return nil, err
	}
	if err := s.CheckBypass(r, b); err != nil {
		return nil, err
	}
	if known := Bypassable(s, b.Channel, r, b.At); !slices.Contains(known, b.Condition) {
		if !BypassableKind(b.Condition) {
			return nil, fmt.Errorf("%s cannot be bypassed; expected %s", b.Condition, entities.OneOf(known))
		}
		return nil, fmt.Errorf("%s has no condition %q; expected %s", b.Channel, b.Condition, entities.OneOf(known))
	}
	if old := r.Bypassed(b.Channel, b.Condition); old != nil {
		return says("%s of %s is already %s", b.Condition, b.Channel, old.Text()), nil
	}
	if r.Phases[b.Channel].Phase == maestro.Pending {
		if j, ok := Gate(s, b.Channel, b.Condition, r, b.At); ok && j.Verdict == entities.Pass {
			return says("%s passes already%s; nothing is bypassed", b.Condition, entities.Because(j.Reason)), nil
		}
	}
	return s.Bypass(r, b), nil
}

// says is the effect of what is so already: none.
func says(format string, args ...any) state.Effect {
	return func() string { return fmt.Sprintf(format, args...) }
}
