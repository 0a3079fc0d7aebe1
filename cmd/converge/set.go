package main

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"time"

	gitconfig "github.com/go-git/go-git/v5/config"
	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/origin"
)

type setOptions struct {
	f             *Factory
	source        string
	path, value   string
	was           string
	wasGiven      bool
	author        string
	message       string
	store         string
	allowCommands bool

	then    []string // paths that get the value afterwards, one after the other
	pause   time.Duration
	timeout time.Duration
	revert  bool
	publish bool
}

func newCmdSet(f *Factory, runF func(context.Context, *setOptions) error) *cobra.Command {
	o := &setOptions{f: f}
	cmd := &cobra.Command{
		Use:   "set SOURCE PATH VALUE",
		Short: "Change a value of a configuration in its git repository",
		Long: `Change one value in a git repository, by a commit to the branch that SOURCE names. PATH is
KIND/NAME and a field, as in Service/web.parameters[name=greeting].default; it must exist.
Comments and layout are kept. An invalid result is not pushed. If somebody else pushes at
the same time, the change is retried, unless they changed the same value. Nothing is
published: use converge config watch or converge config publish.

With --then, the change is made in steps: PATH gets the value first; once that is
published and its changes have converged, the next path gets it, in a commit of its own. A
step that fails ends the command. A second run resumes: a path that already has the value
is only waited for.`,
		Example: `  converge config set 'git::https://github.com/acme/shop//deploy?ref=main' \
    Service/web.custom.env.GREETING hi --was hello
  converge config set 'git::https://github.com/acme/shop//deploy' \
    Service/web.perReleaseChannel[releaseChannel=eu].parameters.units 5 --pause 10m \
    --then Service/web.perReleaseChannel[releaseChannel=us].parameters.units`,
		Args: argsFromUse,
	}
	cmd.RunE = newRunE(o, runF, o.run, func(args []string) error {
		o.source, o.path, o.value, o.wasGiven = args[0], args[1], args[2], cmd.Flags().Changed("was")
		return nil
	})
	cmd.Flags().StringVar(&o.was, "was", "", "change it only if this is its current value")
	cmd.Flags().StringVar(&o.author, "author", "", "author of the commit, as 'Ada <ada@acme.dev>' (default: user.name and user.email of git)")
	cmd.Flags().StringVarP(&o.message, "message", "m", "", "message of the commit (default: what was set)")
	cmd.Flags().StringVar(&o.store, "store", "", "store with the runtimes that other applications define (CONVERGE_STORE)")
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, allowCommandsUsage)
	cmd.Flags().StringArrayVar(&o.then, "then", nil, "next path that gets the value, once the previous change has converged (repeatable)")
	cmd.Flags().DurationVar(&o.pause, "pause", 0, "with --then: time to wait between two steps")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "with --then: fail a step that has not converged after this duration (default: never)")
	cmd.Flags().BoolVar(&o.revert, "revert", false, "with --then: if a step fails, revert what was committed, the last first")
	cmd.Flags().BoolVar(&o.publish, "publish", false, "with --then: publish each step, as converge config publish does")
	return cmd
}

func (o *setOptions) run(ctx context.Context) error {
	if len(o.then) == 0 && (o.pause != 0 || o.timeout != 0 || o.revert || o.publish) {
		return errors.New("--pause, --timeout, --revert and --publish require --then")
	}
	source, err := origin.Parse(o.source)
	if err != nil {
		return err
	}
	editor, ok := source.(origin.Editor)
	if !ok {
		return fmt.Errorf("%s is read-only; expected a git repository: git::URL//PATH?ref=BRANCH", source)
	}
	e := origin.Edit{Path: o.path, Value: o.value, Message: first(o.message, fmt.Sprintf("Set %s to %s", o.path, o.value))}
	if o.wasGiven {
		e.Expected = &o.was
	}
	if e.Author, e.Email, err = o.commitAuthor(); err != nil {
		return err
	}
	if len(o.then) > 0 {
		return (&stepRun{setOptions: o, source: source, editor: editor, edit: e}).run(ctx)
	}
	e.Check = func(ctx context.Context, tree origin.Tree) error {
		_, err := o.f.compileTree(ctx, tree, o.store, o.allowCommands)
		return err
	}
	done, err := editor.Edit(ctx, e)
	if err != nil {
		return o.f.problems(err, "; nothing pushed")
	}
	if o.f.structured() {
		return o.f.screen().Document(done)
	}
	if done.Commit == "" {
		return o.f.screen().Lines(fmt.Sprintf("%s is already %q", o.path, done.Before))
	}
	return o.f.screen().Lines(fmt.Sprintf("%s: changed %q to %q in commit %s, in %s", o.path, done.Before, done.After, done.Commit[:12], done.File))
}

// commitAuthor returns the author of the commit.
func (o *setOptions) commitAuthor() (name, email string, err error) {
	if o.author != "" {
		address, err := mail.ParseAddress(o.author)
		if err != nil || address.Name == "" {
			return "", "", fmt.Errorf("--author %q: expected a name and an address, as 'Ada <ada@acme.dev>'", o.author)
		}
		return address.Name, address.Address, nil
	}
	config, err := gitconfig.LoadConfig(gitconfig.GlobalScope)
	if err != nil {
		return "", "", fmt.Errorf("read the git configuration: %w", err)
	}
	if config.User.Name == "" || config.User.Email == "" {
		return "", "", errors.New("the author of the commit is unknown; set --author 'Ada <ada@acme.dev>', or git config --global user.name and user.email")
	}
	return config.User.Name, config.User.Email, nil
}
