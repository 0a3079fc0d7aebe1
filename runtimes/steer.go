package runtimes

import "context"

// Steerer is a runtime that has rollouts which go on in steps of their own, and of which it reports where they wait
// (entities.Object.Suspended, Steerable).
type Steerer interface {
	// Steer has the rollouts of an instance go on, or go back, and says of each what it did. It concerns those that are at
	// in.FullVersion, and of those, to go on, the ones that wait at s.At: what has gone on since is left alone, so that asking twice
	// does once. That there is none is an error.
	Steer(ctx context.Context, in Instance, s Steer) (did []string, err error)
}

// Steer is what is asked of rollouts.
type Steer struct {
	Abort bool // go back; else go on
	Full  bool // skip all steps that are left
	At    string
}
