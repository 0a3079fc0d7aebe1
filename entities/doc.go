// Package entities is the domain of Converge: the tracked state, the desired state, and the decision that closes the gap. Everything in it
// is a function of plain values, including the time. So the same code runs in a workflow, in a property test and in a simulation.
//
// It uses no clocks, goroutines, randomness, network or logging, and imports only the standard library (tests/layers_test.go checks that).
package entities
