package runtimes

// The codes of a reading that failed (entities.ReadingError). They are part of a reading's digest
// and of what `status` prints, so they never change; the message beside them may.
const (
	CodeFetchFailed     = "fetch-failed"      // the command, or the API call, failed
	CodeMalformed       = "malformed-output"  // it answered something that is not a document (C6)
	CodeTimeout         = "timeout"           // it did not answer in time
	CodeOutputTooLarge  = "output-too-large"  // its document is over the limit
	CodeCommandNotFound = "command-not-found" // there is no such program, or it cannot be executed

	CodeUnreachable  = "unreachable"  // nobody answers at the address, or not as the server that is meant
	CodeUnauthorized = "unauthorized" // the credentials are not accepted: expired, withdrawn, wrong
	CodeForbidden    = "forbidden"    // they are, and do not allow what was asked
	CodeUnknownKind  = "unknown-kind" // the server has no such kind of object
)
