package custom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/converge-engine/converge/runtimes"
)

// call is one command to run for an instance.
type call struct {
	doing   string // how its errors begin: "apply shop/web to staging"
	argv    []string
	timeout time.Duration
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
}

var errTooLarge = errors.New("output too large")

// run prepares the environment, runs the command and sorts its ends: what could not start, what was
// ended by us, and what ended by itself.
func (r *Runtime) run(ctx context.Context, c call, in runtimes.Instance) (res result) {
	res = result{call: c, redact: &redactor{}, out: runtimes.Output{Command: strings.Join(c.argv, " "), ExitCode: -1}}
	env, secrets, err := environment(r.def, in)
	res.redact = newRedactor(secrets)
	res.out.Command = res.redact.text(res.out.Command)
	if err != nil {
		res.end(runtimes.CodeFetchFailed, err)
		return res
	}
	if in.Payload != nil && in.Payload.Custom != nil && len(in.Payload.Custom.Files) > 0 {
		dir, err := writeFiles(in.Payload.Custom.Files)
		defer func() { _ = os.RemoveAll(dir) }() // nothing to do about it: the directory is the system's to clean
		if err != nil {
			res.end(runtimes.CodeFetchFailed, err)
			return res
		}
		env = append(env, "CONVERGE_FILES="+dir)
	}
	path, err := r.program(c.argv[0], env)
	if err != nil {
		res.end(runtimes.CodeCommandNotFound, err)
		return res
	}
	r.execute(ctx, &res, path, env)
	return res
}

func (r *Runtime) execute(ctx context.Context, res *result, path string, env []string) {
	bounded, cancel := context.WithTimeout(ctx, res.timeout)
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	defer stop(nil)

	outTail, errTail := res.redact.tail(MaxTail), res.redact.tail(MaxTail)
	whole := &head{limit: MaxDocument, full: func() { stop(errTooLarge) }}
	p := process{path: path, argv: res.argv, dir: r.def.Dir, env: env, stdout: outTail, stderr: errTail, grace: r.grace, drain: r.drain}
	if res.fetch {
		p.stdout = tee{whole, outTail}
		p.sweep = true
	}
	res.out.Started = time.Now()
	exit, err := p.run(bounded)
	res.out.Duration = time.Since(res.out.Started)
	res.out.Stdout, res.out.Stderr = outTail.String(), errTail.String()
	res.out.ExitCode, res.signal = exit.code, exit.signal
	res.stdout = whole.buf.Bytes()

	switch {
	case whole.over:
		res.end(runtimes.CodeOutputTooLarge, fmt.Errorf("%s printed more than %d KiB", res.argv[0], MaxDocument>>10))
	case err == nil && exit.ended: // by itself, maybe just in time
	case errors.Is(ctx.Err(), context.Canceled):
		res.end("", fmt.Errorf("%s interrupted: %w", res.argv[0], context.Canceled))
	case ctx.Err() != nil: // the caller's deadline, not ours
		res.end(runtimes.CodeTimeout, fmt.Errorf("%s did not finish in time and was ended%s", res.argv[0], res.lastWords()))
	case bounded.Err() != nil:
		res.end(runtimes.CodeTimeout, fmt.Errorf("%s did not finish within %s and was ended%s", res.argv[0], res.timeout, res.lastWords()))
	default:
		res.end(r.startError(path, err))
	}
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
