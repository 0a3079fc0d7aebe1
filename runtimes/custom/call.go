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
	doing   string // the beginning of its errors: "apply shop/web to staging"
	purpose string // apply, fetch, plan or remove; a Job carries it as a label
	argv    []string
	timeout time.Duration
	answers bool // its stdout is an answer and must be complete; its errors are reading errors
	secret  bool // its output contains secrets and is never shown
}

// result is the result of a call. Either err is set, ready to be returned, or the command ended and out.ExitCode has its exit code.
type result struct {
	call
	err    error
	out    runtimes.Output
	signal string // the signal that ended it, if one did
	stdout []byte // unredacted, of a fetch
	redact *redactor
	merged bool   // stdout includes stderr
	place  string // where it ran, for people, unless that was this machine
	sweep  bool   // processes that the command leaves running are ended
}

var errTooLarge = errors.New("output too large")

// run resolves the environment of the command, runs it, and classifies its end: it could not start, Converge ended it, or it ended
// without that.
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

// newResult is the result of a call that has not run. It shows no secret, not even in the command.
func newResult(c call, secrets map[string]string) result {
	redact := newRedactor(slices.Sorted(maps.Values(secrets)))
	return result{call: c, redact: redact, out: runtimes.Output{Command: redact.text(strings.Join(c.argv, " ")), ExitCode: -1}}
}

// end sets the error of a call without an answer. An empty code is a cancellation, which says nothing about the runtime.
func (res *result) end(code string, err error) {
	err, res.out.TimedOut = res.fail("%w", err), code == runtimes.CodeTimeout
	if res.answers && code != "" {
		err = readingError(code, err)
	}
	res.err = err
}

// exited is the error of a command that failed.
func (res *result) exited() error {
	how := fmt.Sprintf("exited %d", res.out.ExitCode)
	if res.signal != "" {
		how = "was ended by signal " + res.signal
	}
	return res.fail("%s %s%s", res.argv[0], how, res.lastOutput())
}

// exitedOf is the error of a failed apply or removal. It is permanent, unless retryable exit codes are declared and it has one of
// them (C10).
func (res *result) exitedOf(cmd entities.Command) error {
	err := res.exited()
	if res.signal == "" && len(cmd.RetryableExitCodes) > 0 && !slices.Contains(cmd.RetryableExitCodes, res.out.ExitCode) {
		return runtimes.Permanent(err)
	}
	return err
}

// lastOutput is the last output of a failed command, for the end of an error.
func (res *result) lastOutput() string {
	for _, stream := range []string{res.out.Stderr, res.out.Stdout} {
		lines := strings.Split(strings.TrimSpace(stream), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return ": " + runtimes.Clip(last, 256)
		}
		if res.answers {
			break // its stdout is data, no message
		}
	}
	return ""
}

// fail makes an error that names the action, without secrets in its text. The wrapped error is available only through errors.Is and
// errors.As.
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

// head keeps the beginning of a stream, and calls full once if there is more.
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

// work is a command with all references resolved, ready to run.
type work struct {
	env     map[string]string // without the variables of the place where it runs
	secrets map[string]string // environment too, hidden from others
	files   map[string]string // relative path → content
	named   map[string]string // variables for the paths of some of them, by name → relative path
	one     string            // of an apply: the instance, which has one apply at a time
	key     string            // of an apply: equal for a repeated one
	try     string            // of an apply: the id of this attempt
	labels  labels
}

// labels describe a command for people who find it running.
type labels struct {
	purpose string
	owner   runtimes.Owner // without an instance's name: the whole channel
	runtime string
}

// runner runs commands. It sets the result: either an error, by result.end, or the end of the command. When ctx ends, it leaves no
// process running.
type runner interface {
	run(ctx context.Context, res *result, w work)
}

// capture is the destination of a command's output: the redacted ends of the streams for people, and the complete stdout of an
// answer.
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

// last is the current end of both streams, stderr last: at most limit bytes.
func (c capture) last(limit int) string {
	err := strings.TrimSpace(c.stderr.last(limit))
	out := strings.TrimSpace(c.stdout.last(max(0, limit-len(err)-1)))
	return strings.TrimSpace(out + "\n" + err)
}

// put captures streams that were stored elsewhere; their beginning may be missing.
func (c capture) put(redact *redactor, stdout []byte, stdoutCut bool, stderr []byte, stderrCut bool) {
	stdout = redact.whole(stdout, stdoutCut)
	_, _ = c.whole.Write(stdout) // none of them fails
	_, _ = c.stdout.Write(stdout)
	_, _ = c.stderr.Write(redact.whole(stderr, stderrCut))
}

// keep stores the captured output and the times.
func (res *result) keep(c capture, started time.Time, took time.Duration) {
	res.out.Started, res.out.Duration = started, took
	res.out.Stdout, res.out.Stderr = c.stdout.String(), c.stderr.String()
	res.stdout = c.whole.buf.Bytes()
}
