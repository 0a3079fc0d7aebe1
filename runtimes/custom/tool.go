package custom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Tool is a command of the user of this program, without an instance: it generates configuration, or checks it. It gets only the
// inherited environment of a command. It runs in its own process group, which is ended after it.
type Tool struct {
	ErrorPrefix string // the beginning of its errors: "generator ./render"
	Dir         string // absolute; relative commands start here
	Argv        []string
	Env         map[string]string // besides the inherited variables
	Stdin       []byte
	Timeout     time.Duration
	Limit       int // of each stream, in bytes; more is an error
}

// RunTool runs a tool until it ends. An error says why there is no end: it could not start, printed too much, or was ended at its
// timeout or because ctx ended.
func RunTool(ctx context.Context, t Tool) (stdout, stderr []byte, code int, err error) {
	runner := localRunner{dir: t.Dir}
	if len(t.Argv) == 0 {
		return nil, nil, -1, fmt.Errorf("%s has no command", t.ErrorPrefix)
	}
	path, env, err := runner.prepare(t.Argv, command{env: t.Env}, "")
	if err != nil {
		return nil, nil, -1, fmt.Errorf("%s: %w", t.ErrorPrefix, err)
	}
	bounded, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	defer stop(nil)
	out, errOut := head{limit: t.Limit, onExceeded: func() { stop(errTooLarge) }}, head{limit: t.Limit, onExceeded: func() { stop(errTooLarge) }}
	p := process{
		path: path, argv: t.Argv, dir: t.Dir, env: env, stdin: bytes.NewReader(t.Stdin), stdout: &out, stderr: &errOut,
		grace: toolGrace, drain: toolGrace, killLeftovers: true,
	}
	exit, err := p.run(bounded)
	switch {
	case out.exceeded || errOut.exceeded:
		err = fmt.Errorf("%s printed more than %d KiB", t.ErrorPrefix, t.Limit>>10)
	case err == nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", t.ErrorPrefix, ctx.Err())
	case errors.Is(bounded.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%s did not finish within %s and was ended", t.ErrorPrefix, t.Timeout)
	default:
		_, err = runner.startError(path, err)
		err = fmt.Errorf("%s: %w", t.ErrorPrefix, err)
	}
	return out.buf.Bytes(), errOut.buf.Bytes(), exit.code, err
}

// toolGrace is the time that a tool has to end after SIGTERM.
const toolGrace = time.Second
