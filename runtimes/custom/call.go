package custom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/runtimes"
)

// call is one command to run for an instance.
type call struct {
	doing   string // how its errors begin: "apply shop/web to staging"
	argv    []string
	timeout time.Duration
	remove  bool
	fetch   bool // its stdout is wanted as a whole, and its errors are reading errors
}

// result is how a call went. Either err is set, ready to be returned, or the command ran to its end
// and out.ExitCode tells how.
type result struct {
	call
	err    error
	out    runtimes.Output
	signal string // that ended it, if one did
	stdout []byte // raw, of a fetch
	redact *redactor
	merged bool // stdout has stderr in it
	sweep  bool // what the command leaves running is ended
}

var errTooLarge = errors.New("output too large")

// run resolves what the command gets, has it run, and sorts its ends: what could not start, what was
// ended by us, and what ended by itself.
func (r *Runtime) run(ctx context.Context, c call, in runtimes.Instance) (res result) {
	res = result{call: c, redact: &redactor{}, out: runtimes.Output{Command: strings.Join(c.argv, " "), ExitCode: -1}}
	env, secrets, err := environment(r.def, in)
	res.redact = newRedactor(slices.Sorted(maps.Values(secrets)))
	res.out.Command = res.redact.text(res.out.Command)
	if err != nil {
		res.end(runtimes.CodeFetchFailed, err)
		return res
	}
	w := work{env: env, secrets: secrets, labels: labels{"fetch", in.Application, in.Service, in.Channel, r.def.Name}}
	if in.Payload != nil && in.Payload.Custom != nil {
		w.files = in.Payload.Custom.Files
	}
	if c.remove {
		w.labels.purpose = "remove"
	} else if !c.fetch {
		w.labels.purpose = "apply"
		w.one, w.key = strings.Join([]string{in.Application, in.Service, in.Channel, r.def.Name}, "/"), in.Key
	}
	r.runner.run(ctx, &res, w)
	return res
}

// end sets the error of a call that gives no answer. An empty code is an interruption from outside,
// which says nothing about the runtime.
func (res *result) end(code string, err error) {
	err = res.fail("%w", err)
	if res.fetch && code != "" {
		err = readingError(code, err)
	}
	res.err = err
}

// exited is the error of a command that ran to a bad end.
func (res *result) exited() error {
	how := fmt.Sprintf("exited %d", res.out.ExitCode)
	if res.signal != "" {
		how = "was ended by signal " + res.signal
	}
	return res.fail("%s %s%s", res.argv[0], how, res.lastWords())
}

// lastWords is what a failed command said last, for the end of an error.
func (res *result) lastWords() string {
	for _, stream := range []string{res.out.Stderr, res.out.Stdout} {
		lines := strings.Split(strings.TrimSpace(stream), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return ": " + runtimes.Clip(last, 256)
		}
		if res.fetch {
			break // its stdout is data, not talk
		}
	}
	return ""
}

// fail makes an error that says what was being done, with secrets taken out of its text. What it
// wraps can still be asked for, but only through errors.Is and errors.As.
func (res *result) fail(format string, args ...any) error {
	err := fmt.Errorf("%s: %w", res.doing, fmt.Errorf(format, args...))
	return redactedError{text: res.redact.text(err.Error()), err: err}
}

type redactedError struct {
	text string
	err  error
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.err }

// head keeps the beginning of a stream, and tells once when there was more.
type head struct {
	buf   bytes.Buffer
	limit int
	over  bool
	full  func()
}

func (h *head) Write(b []byte) (int, error) {
	room := h.limit - h.buf.Len()
	h.buf.Write(b[:min(room, len(b))])
	if len(b) > room && !h.over {
		h.over = true
		h.full()
	}
	return len(b), nil
}

type tee struct {
	whole *head
	tail  *tail
}

func (t tee) Write(b []byte) (int, error) {
	_, _ = t.whole.Write(b) // neither of them fails
	return t.tail.Write(b)
}
