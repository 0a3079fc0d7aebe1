// Package view is what a service's state and the last decision look like from outside: the status document that
// queries answer, its headline, and what saved views are filtered by. It reads, and decides nothing; how a status is
// written for people is entities/explain. It imports state, decide and protocol.
package view
