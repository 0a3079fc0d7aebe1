package preview

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Capabilities queries the workers for the capabilities of the clusters of some runtimes, as charts see them, by name. It fails if one of
// them does not answer.
func (p *Planner) Capabilities(ctx context.Context, application string, all []entities.RuntimeDefinition) (map[string]protocol.Capabilities, error) {
	out := map[string]protocol.Capabilities{}
	if err := p.Store.CheckReachable(all); err != nil {
		return nil, err
	}
	for _, definition := range all {
		digest, err := p.Store.PutRuntime(ctx, definition) // content-addressed, so it affects nothing else
		if err != nil {
			return nil, err
		}
		items := []protocol.PreviewItem{{Runtime: definition.Name, RuntimeDigest: digest, Remote: definition.Remote, Capabilities: true}}
		answers, err := p.preview(ctx, application, "*", "lock "+application+" "+definition.Name, items)
		if err != nil {
			return nil, err
		}
		switch answer := answers[0]; {
		case answer.Capabilities != nil:
			out[definition.Name] = *answer.Capabilities
		case answer.Code == protocol.PreviewNoWorker, answer.Code == protocol.PreviewTimeout, answer.Code == protocol.PreviewNotReady, answer.Code == protocol.PreviewNoPlanner:
			return nil, fmt.Errorf("runtime %s: %s [%s]", definition.Name, answer.Message, answer.Code)
		default:
			return nil, fmt.Errorf("runtime %s: the cluster cannot be queried: %s", definition.Name, answer.Message)
		}
	}
	return out, nil
}
