package connection

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
)

// askPause is the time between two attempts of a query.
const askPause = 100 * time.Millisecond

// Ask repeats a query until it is answered, or ctx ends. The server gives a query up after seconds if the worker that has the workflow in its
// memory has just ended, although another worker serves.
func Ask(ctx context.Context, query func() error) error {
	for {
		err := query()
		if !errors.As(err, new(*serviceerror.DeadlineExceeded)) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askPause):
		}
	}
}
