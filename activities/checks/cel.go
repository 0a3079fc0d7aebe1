package checks

import (
	"cmp"
	"context"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/expression"
)

// cel evaluates an expression over the data of the release (A20).
type cel struct{ sources Sources }

func (c cel) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.CEL
	if d == nil {
		return incomplete(a)
	}
	in, _, err := c.sources.input(ctx, a, maxInput)
	if err != nil {
		return entities.CheckReading{}, err
	}
	ok, err := expression.Evaluate(ctx, d.Expression, in)
	message := cmp.Or(d.Message, "false: "+d.Expression)
	switch {
	case err != nil:
		return entities.CheckReading{}, err
	case ok:
		return pass("true: %s", d.Expression)
	case d.Fails:
		return fail("%s", message)
	}
	return wait("%s", message)
}
