package checks

import (
	"context"
	"errors"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// deniedCommits fails a release that brings a commit to the channel that its current incarnation does not have (A20). A commit that is
// already there does not block.
type deniedCommits struct{ Sources }

func (c deniedCommits) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.DeniedCommits
	if d == nil {
		return incomplete(a)
	}
	if c.Commits == nil {
		return entities.CheckReading{}, errors.New("commits are not available here")
	}
	brought, err := c.Commits.Brought(ctx, a.Definition.Application, a.Evaluation.Since, a.Evaluation.Incarnation)
	if err != nil {
		return entities.CheckReading{}, err
	}
	for _, i := range brought.Commits {
		for _, commit := range i.Commits {
			for _, denied := range d.Commits {
				if strings.HasPrefix(commit.SHA, denied) {
					return fail("commit %s of incarnation %d is denied%s", commit, i.Incarnation, entities.Because(d.Reason))
				}
			}
		}
	}
	if brought.Unknown != "" {
		return unevaluated("cannot tell whether it brings a denied commit: %s; to let it pass: converge bypass", brought.Unknown)
	}
	return pass("none of its commits is denied")
}
