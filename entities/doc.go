// Package entities is the domain of Converge: what is tracked, what is wanted, and the decision
// that closes the gap. Everything in it is a function of plain values, the time included, so the
// same code runs in a workflow, in a property test and in a simulation.
//
// It refuses clocks, goroutines, randomness, the network and logging, and imports nothing but the
// standard library (tests/layers_test.go holds it to that).
package entities
