// Package worker connects workflows, activities, runtimes and the store to a Temporal server. It has explicit lists of the registrations.
// The embedded server is in worker/embedded, which only the program that starts it imports.
package worker
