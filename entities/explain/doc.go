// Package explain renders a service's status for people: the lines of `explain`, the table of
// `status`, and the Markdown that the Temporal UI shows. Each rendering is a function of the
// status and, except for the Markdown, of the time: the same input gives the same bytes, so a
// workflow may call it.
//
// It decides nothing: what it says about a channel was decided before and stands in the status.
// It may import entities and entities/protocol, and refuses clocks (tests/layers_test.go).
package explain
