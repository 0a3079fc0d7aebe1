// Package state holds the state of a Service workflow and all code that writes it: the verbs of people, the results of activities, and
// the changes of a decision. The package entities/decide reads the state and decides what may happen.
//
// All of it is bounded and is carried across continue-as-new. If everything is lost but releases, approvals, pins and pauses, readings
// restore the rest. The package imports entities and entities/maestro.
package state
