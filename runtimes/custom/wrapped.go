package custom

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

// maxReportSize limits the bytes of a wrapper's document that are read: both streams, and their encoding as JSON.
const maxReportSize = 4 << 20

// remaining is the number of bytes that a head still accepts. A wrapper's document may be larger than a command's own output, since
// the document contains more.
func (h *head) remaining() int {
	limit := h.limit
	if bytes.HasPrefix(h.buf.Bytes(), []byte(report.Opening)) {
		limit = maxReportSize
	}
	return limit - h.buf.Len()
}

// unwrap captures the output of a command that ran in a wrapper (C8), instead of the wrapper's document about it.
func (res *result) unwrap(c capture, doc report.Document) capture {
	inner := res.capture(func() {})
	inner.stderr = c.stderr // of the wrapper itself, and of processes outside it
	inner.storeStreams(res.redact, doc.Stdout.Data, doc.Stdout.Truncated(), doc.Stderr.Data, doc.Stderr.Truncated())
	inner.document.exceeded = inner.document.exceeded || doc.Stdout.Truncated()
	return inner
}

// withReport adds the wrapper's information about the end. Neither hides a failure of the other.
func (e exit) withReport(doc report.Document) exit {
	e.code, e.signal = cmp.Or(e.code, doc.ExitCode), cmp.Or(e.signal, doc.Signal)
	return e
}

// setWrapperResult classifies the reasons for which a wrapper ends its command.
func (res *result) setWrapperResult(doc report.Document) {
	switch {
	case doc.TimedOut:
		res.setError(runtimes.CodeTimeout, fmt.Errorf("%s was ended by its wrapper at the timeout%s", res.argv[0], res.lastOutput()))
	case doc.Error != "" && (doc.ExitCode == 126 || doc.ExitCode == 127):
		res.setError(runtimes.CodeCommandNotFound, errors.New(doc.Error))
	case doc.Error != "":
		res.setError(runtimes.CodeFetchFailed, errors.New(doc.Error))
	}
}
