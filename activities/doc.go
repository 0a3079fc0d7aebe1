// Package activities connects workflows with runtimes and the store: it observes, applies, renders, evaluates and notifies. It makes no
// decisions about releases. A failure that Temporal should retry is an error; a result that the decision needs is an answer.
//
// It may import entities, intent, runtimes and the Temporal SDK.
package activities
