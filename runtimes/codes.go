package runtimes

// The codes of a reading that failed (entities.ReadingError). They are part of a reading's digest
// and of what `status` prints, so they never change; the message beside them may.
const (
	CodeFetchFailed     = "fetch-failed"      // the command, or the API call, failed
	CodeMalformed       = "malformed-output"  // it answered something that is not a document (C6)
	CodeTimeout         = "timeout"           // it did not answer in time
	CodeOutputTooLarge  = "output-too-large"  // its document is over the limit
	CodeCommandNotFound = "command-not-found" // there is no such program, or it cannot be executed
)
