// Package decide holds the convergence decision: a function of a service's state and the time only. It computes the target of each
// instance, whether the instance may move now, and its status. It reads the state and never writes it. The result is a value, which
// entities/loop commits.
//
// The gates that a release must pass before it enters a channel are one table (gates.go), with a row and a file for each kind of gate.
// The kinds of instance are another table (entity.go).
package decide
