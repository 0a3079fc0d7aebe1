// Package view builds the external view of a service's state and its last decision: the status document of queries, its headline, and the
// attributes for saved views. It is read-only and decides nothing. Package entities/explain formats a status for people. It imports state,
// decide and protocol.
package view
