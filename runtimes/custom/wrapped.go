package custom

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

// largestReport bounds what is read of a wrapper's document: both streams, and what it takes to write them as JSON.
const largestReport = 4 << 20

// room is how much a head keeps: of a wrapper's document more than of what a command prints itself, since there is more in it.
func (h *head) room() int {
	limit := h.limit
	if bytes.HasPrefix(h.buf.Bytes(), []byte(report.Opening)) {
		limit = largestReport
	}
	return limit - h.buf.Len()
}

// unwrap captures what a command printed that ran in a wrapper (C8), instead of the document that the wrapper printed about it.
func (res *result) unwrap(c capture, doc report.Document) capture {
	within := res.capture(func() {})
	within.stderr = c.stderr // the wrapper's own, and of what ran beside it
	within.put(res.redact, doc.Stdout.Data, doc.Stdout.Truncated(), doc.Stderr.Data, doc.Stderr.Truncated())
	within.whole.over = within.whole.over || doc.Stdout.Truncated()
	return within
}

// of adds what the wrapper knows of the end. Neither hides a failure of the other.
func (e exit) of(doc report.Document) exit {
	e.code, e.signal = cmp.Or(e.code, doc.ExitCode), cmp.Or(e.signal, doc.Signal)
	return e
}

// ended sorts the ends that a wrapper puts to its command.
func (res *result) ended(doc report.Document) {
	switch {
	case doc.TimedOut:
		res.end(runtimes.CodeTimeout, fmt.Errorf("%s was ended by its wrapper, which gave it no more time%s", res.argv[0], res.lastOutput()))
	case doc.Error != "" && (doc.ExitCode == 126 || doc.ExitCode == 127):
		res.end(runtimes.CodeCommandNotFound, errors.New(doc.Error))
	case doc.Error != "":
		res.end(runtimes.CodeFetchFailed, errors.New(doc.Error))
	}
}
