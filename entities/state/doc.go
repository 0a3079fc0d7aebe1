// Package state holds what a Service workflow remembers, and everything that writes it: what people's verbs
// do, what comes back from outside, and the changes that a decision makes. Whether something may happen is
// decided elsewhere (entities/decide), by reading what stands here.
//
// All of it is bounded and is carried across continue-as-new. With everything lost but releases, approvals,
// pins and pauses, the rest is rebuilt from readings. It imports entities and entities/maestro.
package state
