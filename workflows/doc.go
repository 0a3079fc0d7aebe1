// Package workflows is the shell around the pure core: it receives verbs, asks entities for a
// decision, starts the activities that the decision names, and lives for ever by continue-as-new.
// It decides nothing itself. What all workflows that live for ever have in common stands once, in shell*.go.
//
// It imports entities and the Temporal SDK only; activities are called by name, so that no
// runtime's SDK enters its build (tests/layers_test.go).
package workflows
