// Package workflows is the shell around the pure core. It receives verbs, asks entities for a decision, and starts the activities that the
// decision names. Its workflows live forever by continue-as-new. It decides nothing itself. The code that all these workflows share is in
// shell*.go.
//
// It imports entities and the Temporal SDK only. Activities are called by name, so that no runtime's SDK enters its build
// (tests/layers_test.go).
package workflows
