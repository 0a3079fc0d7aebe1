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
	errorPrefix  string // the beginning of its errors; "" if the reader knows the action and the channel
	purpose      string // apply, fetch, plan or remove; a Job carries it as a label
	argv         []string
	timeout      time.Duration
	needsOutput  bool // its stdout is an answer and must be complete; its errors are reading errors
	secretOutput bool // its output contains secrets and is never shown
}

// result is the result of a call. Either err is set, ready to be returned, or the command ended and out.ExitCode has its exit code.
type result struct {
	call
	err           error
	out           runtimes.Output
	signal        string // the signal that ended it, if one did
	stdout        []byte // unredacted, of a fetch
	redact        *redactor
	merged        bool   // stdout includes stderr
	location      string // where it ran, for people, unless that was this machine
	killLeftovers bool   // processes that the command leaves running are ended
}

var errTooLarge = errors.New("output too large")

// run resolves the environment of the command, runs it, and classifies its end: it could not start, Converge ended it, or it ended
// without that.
func (r *Runtime) run(ctx context.Context, c call, in runtimes.Request) (res result) {
	env, secrets, err := r.environment(ctx, in)
	res = newResult(c, secrets)
	if err != nil {
		res.setError(runtimes.CodeFetchFailed, err)
		return res
	}
	w := command{env: env, secrets: secrets, labels: labels{c.purpose, in.Owner, r.def.Name}}
	if in.Payload != nil && in.Payload.Custom != nil {
		w.files = in.Payload.Custom.Files
	}
	if c.purpose == "apply" {
		w.exclusiveKey, w.key, w.attemptID = in.Owner.Key()+"/"+r.def.Name, in.Key, in.AttemptID
	}
	r.runner.run(ctx, &res, w)
	return res
}

// newResult is the result of a call that has not run. It shows no secret, not even in the command.
func newResult(c call, secrets map[string]string) result {
	redact := newRedactor(slices.Sorted(maps.Values(secrets)))
	return result{call: c, redact: redact, out: runtimes.Output{Command: redact.text(strings.Join(c.argv, " ")), ExitCode: -1}}
}

// setError sets the error of a call without an answer. An empty code is a cancellation, which says nothing about the runtime.
func (res *result) setError(code string, err error) {
	err, res.out.TimedOut = res.errorf("%w", err), code == runtimes.CodeTimeout
	if res.needsOutput && code != "" {
		err = readingError(code, err)
	}
	res.err = err
}

// exitError is the error of a command that failed.
func (res *result) exitError() error {
	ending := fmt.Sprintf("exited %d", res.out.ExitCode)
	if res.signal != "" {
		ending = "was ended by signal " + res.signal
	}
	return res.errorf("%s %s%s", res.argv[0], ending, res.lastOutput())
}

// retryableExitError is the error of a failed apply or removal. It is permanent, unless retryable exit codes are declared and it has one of
// them (C10).
func (res *result) retryableExitError(cmd entities.Command) error {
	err := res.exitError()
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
		if res.needsOutput {
			break // its stdout is data, no message
		}
	}
	return ""
}

// errorf makes an error without secrets in its text. The wrapped error is available only through errors.Is and
// errors.As.
func (res *result) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if res.errorPrefix != "" {
		err = fmt.Errorf("%s: %w", res.errorPrefix, err)
	}
	if res.location != "" {
		err = fmt.Errorf("%w (%s)", err, res.location)
	}
	return redactedError{text: res.redact.text(err.Error()), err: err}
}

type redactedError struct {
	text string
	err  error
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.err }

// head keeps the beginning of a stream, and calls onExceeded once if there is more.
type head struct {
	buf        bytes.Buffer
	limit      int
	exceeded   bool
	onExceeded func()
}

func (h *head) Write(b []byte) (int, error) {
	kept := max(0, min(h.remaining(), len(b)))
	h.buf.Write(b[:kept])
	if kept < len(b) && !h.exceeded {
		h.exceeded = true
		h.onExceeded()
	}
	return len(b), nil
}

// command is a command with all references resolved, ready to run.
type command struct {
	env           map[string]string // without the variables of the machine where it runs
	secrets       map[string]string // environment too, hidden from others
	files         map[string]string // relative path → content
	fileVariables map[string]string // variables for the paths of some of them, by name → relative path
	exclusiveKey  string            // of an apply: the instance, which has one apply at a time
	key           string            // of an apply: equal for a repeated one
	attemptID     string            // of an apply: the id of this attempt
	labels        labels
}

// labels describe a command for people who find it running.
type labels struct {
	purpose string
	owner   runtimes.Owner // without an instance's name: the whole channel
	runtime string
}

// runner runs commands. It sets the result: either an error, by result.setError, or the end of the command. When ctx ends, it leaves no
// process running.
type runner interface {
	run(ctx context.Context, res *result, w command)
}

// capture is the destination of a command's output: the redacted ends of the streams for people, and the complete stdout of an
// answer.
type capture struct {
	stdout, stderr *tail
	document       *head
}

func (res *result) capture(onExceeded func()) capture {
	redact := res.redact
	if res.secretOutput {
		redact = redactEverything
	}
	return capture{stdout: redact.tail(MaxTail), stderr: redact.tail(MaxTail), document: &head{limit: MaxDocument, onExceeded: onExceeded}}
}

// last is the current end of both streams, stderr last: at most limit bytes.
func (c capture) last(limit int) string {
	err := strings.TrimSpace(c.stderr.last(limit))
	out := strings.TrimSpace(c.stdout.last(max(0, limit-len(err)-1)))
	return strings.TrimSpace(out + "\n" + err)
}

// storeStreams captures streams that were stored elsewhere; their beginning may be missing.
func (c capture) storeStreams(redact *redactor, stdout []byte, stdoutCut bool, stderr []byte, stderrCut bool) {
	stdout = redact.dropPartialSecret(stdout, stdoutCut)
	_, _ = c.document.Write(stdout) // none of them fails
	_, _ = c.stdout.Write(stdout)
	_, _ = c.stderr.Write(redact.dropPartialSecret(stderr, stderrCut))
}

// storeOutput stores the captured output and the times.
func (res *result) storeOutput(c capture, started time.Time, took time.Duration) {
	res.out.Started, res.out.Duration = started, took
	res.out.Stdout, res.out.Stderr = c.stdout.String(), c.stderr.String()
	res.stdout = c.document.buf.Bytes()
}
