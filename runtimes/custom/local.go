package custom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/converge-engine/converge/runtimes"
)

// local runs commands as processes of this machine, in the directory of the definition.
type local struct {
	dir   string
	grace time.Duration
	drain time.Duration
}

func (l *local) run(ctx context.Context, res *result, w work) {
	all := inherit()
	maps.Copy(all, w.env)
	maps.Copy(all, w.secrets)
	if len(w.files) > 0 {
		dir, err := writeFiles(w.files)
		defer func() { _ = os.RemoveAll(dir) }() // nothing to do about it: the directory is the system's to clean
		if err != nil {
			res.end(runtimes.CodeFetchFailed, err)
			return
		}
		all[filesVariable] = dir
	}
	env := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	path, err := l.program(res.argv[0], env)
	if err != nil {
		res.end(runtimes.CodeCommandNotFound, err)
		return
	}
	l.execute(ctx, res, path, env)
}

func (l *local) execute(ctx context.Context, res *result, path string, env []string) {
	bounded, cancel := context.WithTimeout(ctx, res.timeout)
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	defer stop(nil)

	c := res.capture(func() { stop(errTooLarge) })
	p := process{path: path, argv: res.argv, dir: l.dir, env: env, stdout: c.stdout, stderr: c.stderr, grace: l.grace, drain: l.drain, sweep: res.sweep || res.fetch}
	if res.fetch {
		p.stdout = tee{c.whole, c.stdout}
	}
	started := time.Now()
	exit, err := p.run(bounded)
	res.keep(c, started, time.Since(started))
	res.out.ExitCode, res.signal = exit.code, exit.signal

	switch {
	case c.whole.over:
		res.tooLarge()
	case err == nil && exit.ended: // by itself, maybe just in time
	case ctx.Err() != nil:
		res.interrupted(ctx)
	case bounded.Err() != nil:
		res.timedOut()
	default:
		res.end(l.startError(path, err))
	}
}

// The ends that we put to a command.

func (res *result) tooLarge() {
	res.end(runtimes.CodeOutputTooLarge, fmt.Errorf("%s printed more than %d KiB", res.argv[0], MaxDocument>>10))
}

func (res *result) interrupted(ctx context.Context) {
	if errors.Is(ctx.Err(), context.Canceled) {
		res.end("", fmt.Errorf("%s interrupted: %w", res.argv[0], context.Canceled))
		return
	}
	res.end(runtimes.CodeTimeout, fmt.Errorf("%s did not finish in time and was ended%s", res.argv[0], res.lastWords())) // the caller's deadline, not ours
}

func (res *result) timedOut() {
	res.end(runtimes.CodeTimeout, fmt.Errorf("%s did not finish within %s and was ended%s", res.argv[0], res.timeout, res.lastWords()))
}
