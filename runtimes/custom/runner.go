package custom

import (
	"context"
	"time"
)

// work is a command as it is to be run, with everything resolved.
type work struct {
	env     map[string]string // without what comes from the place where it runs
	secrets map[string]string // environment too, not to be seen by others
	files   map[string]string // relative path → content
	one     string            // of an apply: the instance, for which there is one at a time
	key     string            // of an apply: equal for one that is run again
	labels  labels
}

// labels say what a command is about, for people who find it running.
type labels struct{ purpose, application, service, channel, runtime string }

// runner is how a command is run. It fills in how it went: either an error, by result.end, or the
// command's own end. When ctx ends it leaves nothing running.
type runner interface {
	run(ctx context.Context, res *result, w work)
}

// capture is where a command's output goes: redacted ends for people, and of a fetch the whole.
type capture struct {
	stdout, stderr *tail
	whole          *head
}

func (res *result) capture(full func()) capture {
	return capture{stdout: res.redact.tail(MaxTail), stderr: res.redact.tail(MaxTail), whole: &head{limit: MaxDocument, full: full}}
}

// keep notes what was captured, and when.
func (res *result) keep(c capture, started time.Time, took time.Duration) {
	res.out.Started, res.out.Duration = started, took
	res.out.Stdout, res.out.Stderr = c.stdout.String(), c.stderr.String()
	res.stdout = c.whole.buf.Bytes()
}
