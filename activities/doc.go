// Package activities is the only place where a workflow's wish meets a runtime or the store: it
// looks, applies, renders and tells. It decides nothing about releases; what Temporal should retry
// is an error here, what the decision should know is an answer.
//
// It may import entities, intent, runtimes and the Temporal SDK.
package activities
