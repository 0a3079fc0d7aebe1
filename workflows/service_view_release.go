package workflows

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func viewRelease(r *entities.Release) protocol.ReleaseStatus {
	out := protocol.ReleaseStatus{ID: r.ID, Version: r.FullVersion, Incarnation: r.Incarnation, By: r.By, At: r.At, Phases: map[string]string{}}
	for _, channel := range entities.SortedKeys(r.Phases) {
		p := r.Phases[channel]
		out.Phases[channel] = string(p.Phase)
		if p.Reason != "" {
			if out.Reasons == nil {
				out.Reasons = map[string]string{}
			}
			out.Reasons[channel] = p.Reason
		}
	}
	out.Approvals = append(out.Approvals, r.Approvals...)
	out.Bypasses = append(out.Bypasses, r.Bypasses...)
	for _, key := range entities.SortedKeys(r.Extensions) {
		e := *r.Extensions[key]
		out.Extensions = append(out.Extensions, protocol.ExtensionStatus{Key: key, State: extensionState(e), ExtensionState: e})
	}
	return out
}

func extensionState(e entities.ExtensionState) string {
	switch {
	case e.Running:
		return "running"
	case e.Done:
		return "done"
	case e.Failed:
		return "failed"
	}
	return "waiting"
}
