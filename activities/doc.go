// Package activities is the only place where a workflow's wish meets a runtime or the store: it
// observes, applies, renders, evaluates and notifies. It decides nothing about releases; what Temporal
// should retry is an error here, what the decision should know is an answer.
//
// It may import entities, intent, runtimes and the Temporal SDK.
package activities
