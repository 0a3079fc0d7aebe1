package runtimes

import "context"

// Steerer is a runtime whose rollouts have steps of their own, and which reports where they wait (entities.Object.Suspended,
// Steerable).
type Steerer interface {
	// Steer continues or aborts the rollouts of an instance, and returns a text for each. It affects the rollouts at in.FullVersion;
	// to continue, only those that wait at s.At. A rollout that has continued since is not changed, so that a repeated request has
	// one effect. It is an error if there is no such rollout.
	Steer(ctx context.Context, in Request, s Steer) (results []string, err error)
}

// Steer is a request to continue or abort rollouts.
type Steer struct {
	Abort bool // abort; otherwise continue
	Full  bool // skip all remaining steps
	At    string
}
