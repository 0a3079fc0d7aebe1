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

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// call is one command to run for an instance.
type call struct {
	doing   string // how its errors begin: "apply shop/web to staging"
	purpose string // apply, fetch, plan or remove; a Job carries it as a label
	argv    []string
	timeout time.Duration
	answers bool // its stdout is an answer, wanted as a whole, and its errors are reading errors
	secret  bool // and what it prints are secrets: nobody is shown any of it
}

// result is how a call went. Either err is set, ready to be returned, or the command ran to its end
// and out.ExitCode says how.
type result struct {
	call
	err    error
	out    runtimes.Output
	signal string // that ended it, if one did
	stdout []byte // raw, of a fetch
	redact *redactor
	merged bool   // stdout has stderr in it
	place  string // where it ran, for people, unless that was this machine
	sweep  bool   // what the command leaves running is ended
}

var errTooLarge = errors.New("output too large")

// run resolves what the command gets, has it run, and sorts its ends: what could not start, what was
// ended by us, and what ended by itself.
func (r *Runtime) run(ctx context.Context, c call, in runtimes.Instance) (res result) {
	env, secrets, err := r.environment(ctx, in)
	res = newResult(c, secrets)
	if err != nil {
		res.end(runtimes.CodeFetchFailed, err)
		return res
	}
	w := work{env: env, secrets: secrets, labels: labels{c.purpose, in.Owner, r.def.Name}}
	if in.Payload != nil && in.Payload.Custom != nil {
		w.files = in.Payload.Custom.Files
	}
	if c.purpose == "apply" {
		w.one, w.key, w.try = in.Owner.Key()+"/"+r.def.Name, in.Key, in.Try
	}
	r.runner.run(ctx, &res, w)
	return res
}

// newResult is of a call that has not run. No secret is shown, not even in the command.
func newResult(c call, secrets map[string]string) result {
	redact := newRedactor(slices.Sorted(maps.Values(secrets)))
	return result{call: c, redact: redact, out: runtimes.Output{Command: redact.text(strings.Join(c.argv, " ")), ExitCode: -1}}
}

// end sets the error of a call that gives no answer. An empty code is an interruption from outside,
// which says nothing about the runtime.
func (res *result) end(code string, err error) {
	err, res.out.TimedOut = res.fail("%w", err), code == runtimes.CodeTimeout
	if res.answers && code != "" {
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
	return res.fail("%s %s%s", res.argv[0], how, res.lastOutput())
}

// exitedOf is that of an apply or a removal: permanent unless its exit code is a retryable one, when there
// are any (C10).
func (res *result) exitedOf(cmd entities.Command) error {
	err := res.exited()
	if res.signal == "" && len(cmd.RetryableExitCodes) > 0 && !slices.Contains(cmd.RetryableExitCodes, res.out.ExitCode) {
		return runtimes.Permanent(err)
	}
	return err
}

// lastOutput is what a failed command said last, for the end of an error.
func (res *result) lastOutput() string {
	for _, stream := range []string{res.out.Stderr, res.out.Stdout} {
		lines := strings.Split(strings.TrimSpace(stream), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return ": " + runtimes.Clip(last, 256)
		}
		if res.answers {
			break // its stdout is data, not talk
		}
	}
	return ""
}

// fail makes an error that says what was being done, with secrets taken out of its text. What it
// wraps can still be asked for, but only through errors.Is and errors.As.
func (res *result) fail(format string, args ...any) error {
	err := fmt.Errorf("%s: %w", res.doing, fmt.Errorf(format, args...))
	if res.place != "" {
		err = fmt.Errorf("%w (%s)", err, res.place)
	}
	return redactedError{text: res.redact.text(err.Error()), err: err}
}

type redactedError struct {
	text string
	err  error
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.err }

// head keeps the beginning of a stream, and calls full once when there was more.
type head struct {
	buf   bytes.Buffer
	limit int
	over  bool
	full  func()
}

func (h *head) Write(b []byte) (int, error) {
	kept := max(0, min(h.room(), len(b)))
	h.buf.Write(b[:kept])
	if kept < len(b) && !h.over {
		h.over = true
		h.full()
	}
	return len(b), nil
}

// work is a command as it is to be run, with everything resolved.
type work struct {
	env     map[string]string // without what comes from where it runs
	secrets map[string]string // environment too, not to be seen by others
	files   map[string]string // relative path → content
	named   map[string]string // variables that hold where some of them are, by name → relative path
	one     string            // of an apply: the instance, for which there is one at a time
	key     string            // of an apply: equal for one that is run again
	try     string            // of an apply: this attempt at it
	labels  labels
}

// labels say what a command is about, for people who find it running.
type labels struct {
	purpose string
	owner   runtimes.Owner // without an instance's name: all of its channel
	runtime string
}

// runner is how a command is run. It fills in how it went: either an error, by result.end, or the
// command's own end. When ctx ends it leaves nothing running.
type runner interface {
	run(ctx context.Context, res *result, w work)
}

// capture is where a command's output goes: redacted ends for people, and of an answer the whole.
type capture struct {
	stdout, stderr *tail
	whole          *head
}

func (res *result) capture(full func()) capture {
	shown := res.redact
	if res.secret {
		shown = allOfIt
	}
	return capture{stdout: shown.tail(MaxTail), stderr: shown.tail(MaxTail), whole: &head{limit: MaxDocument, full: full}}
}

// last is the end of both streams so far, stderr last: at most limit bytes.
func (c capture) last(limit int) string {
	err := strings.TrimSpace(c.stderr.last(limit))
	out := strings.TrimSpace(c.stdout.last(max(0, limit-len(err)-1)))
	return strings.TrimSpace(out + "\n" + err)
}

// put captures streams that somebody else has kept, of which the beginning may be missing.
func (c capture) put(redact *redactor, stdout []byte, stdoutCut bool, stderr []byte, stderrCut bool) {
	stdout = redact.whole(stdout, stdoutCut)
	_, _ = c.whole.Write(stdout) // none of them fails
	_, _ = c.stdout.Write(stdout)
	_, _ = c.stderr.Write(redact.whole(stderr, stderrCut))
}

// keep notes what was captured, and when.
func (res *result) keep(c capture, started time.Time, took time.Duration) {
	res.out.Started, res.out.Duration = started, took
	res.out.Stdout, res.out.Stderr = c.stdout.String(), c.stderr.String()
	res.stdout = c.whole.buf.Bytes()
}
