// Package explain renders a service's status for people: the lines of `explain`, the table of `status`, and the Markdown for the Temporal
// UI. Each rendering is a function of the status and, except for the Markdown, of the time. The same input gives the same bytes, so a
// workflow may call it.
//
// It decides nothing: the status contains the decisions. It may import entities and entities/protocol, and no clock (tests/layers_test.go).
package explain
