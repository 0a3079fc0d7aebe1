// Package worker wires workflows, activities, runtimes and the store to a Temporal server. It holds
// the visible lists of what is registered; the embedded server is in worker/embedded, imported only
// by the program that starts it.
package worker
