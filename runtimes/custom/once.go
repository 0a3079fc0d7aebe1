package custom

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/secret"
)

// Once is a command that belongs to no runtime: a check or an extension (A20, A21). It runs as the
// commands of a runtime do, with the same environment (C7), bounds and care for secrets.
type Once struct {
	// What its errors begin with: "check smoke of shop/web in prod".
	What string
	// Purpose is a word for what it is for: "check". A Job carries it as a label.
	Purpose string
	Dir     string // absolute; relative commands start here
	Argv    []string
	Env     map[string]entities.Value
	Job     *entities.CommandJob // nil: a process of this machine
	// Timeout is for everything, of a Job the waiting for a node included.
	Timeout time.Duration
	// Instance says what it is about: without a name, all of a channel. A payload is not needed.
	Instance runtimes.Instance
	// One and Key are for Jobs, as in job.Request: one Job at a time for One, whose result may be taken
	// while Key is equal. Empty: each run has its own.
	One, Key string
	// Asks: the command is a question, asked again and again; what it leaves behind is ended.
	Asks bool
	// Secrets are what references to secrets stand for; nil: there are none.
	Secrets secret.Source
}

// RunOnce runs a command to its end, whatever its exit code and the signal that ended it (empty for
// none). An error says why there is no end: it could not start, or was ended because of its time or
// because ctx ended. With an error the output holds what was printed until then. No secret is in
// either. Clusters are needed for Jobs only.
func RunOnce(ctx context.Context, clusters Clusters, o Once) (out runtimes.Output, signal string, err error) {
	if err := o.check(clusters); err != nil {
		return runtimes.Output{ExitCode: -1}, "", runtimes.Permanent(fmt.Errorf("%s: %w", o.What, err))
	}
	env, secrets, err := resolve(ctx, o.Env, o.Instance, o.Secrets)
	res := newResult(call{doing: o.What, argv: o.Argv, timeout: o.Timeout}, secrets)
	res.sweep = o.Asks
	if err != nil {
		return res.out, "", res.fail("%w", err)
	}
	commands := runner(&local{dir: o.Dir, grace: defaultGrace, drain: defaultDrain})
	if o.Job != nil {
		def := entities.RuntimeDefinition{Name: o.Purpose, Dir: o.Dir, Custom: &entities.CustomRuntime{Job: o.Job}}
		commands = &jobs{def: def, clusters: clusters}
	}
	commands.run(ctx, &res, work{
		env: env, secrets: secrets, one: o.One, key: o.Key,
		labels: labels{o.Purpose, o.Instance.Owner, o.Purpose},
	})
	return res.out, res.signal, res.err
}

func (o Once) check(clusters Clusters) error {
	switch {
	case len(o.Argv) == 0 || o.Argv[0] == "":
		return errors.New("has no command")
	case o.Dir != "" && !filepath.IsAbs(o.Dir):
		return fmt.Errorf("directory %s is relative; expected an absolute one", o.Dir)
	case o.Timeout <= 0:
		return errors.New("has no timeout")
	case o.Job != nil && clusters == nil:
		return errors.New("it is to run as a Job, and no clusters are known here")
	}
	return noSteering(o.Env)
}

// Redact takes secrets out of text: as they are, as they look inside JSON, and line by line.
func Redact(text string, secrets ...string) string { return newRedactor(secrets).text(text) }
