package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/worker/tracing"
)

// Factory gives verbs their streams, environment and connection. Tests replace them.
type Factory struct {
	In       io.Reader
	Out, Err io.Writer
	Raw      io.Writer // for binary output: an archive
	Env      func(string) string
	WorkDir  func() (string, error)
	Now      func() time.Time
	Sleep    func(ctx context.Context, d time.Duration) error
	// CanPrompt reports whether In is a terminal, so that a person can answer a prompt.
	CanPrompt bool
	// Dial connects. It is called when a verb first needs Temporal.
	Dial func(ctx context.Context, c connection.Settings) (connection.API, error)

	conn     connection.Settings
	as       string // the caller's name
	format   string
	token    string // proves the caller's identity; empty: CONVERGE_TOKEN, or the login
	encrypt  bool
	sign     bool // the issuer signs each act
	signedBy *signer
	// tokenErr is the reason why there is no token although there is a login.
	tokenErr error
	tracing  *tracing.Tracing // nil: nothing is traced
	api      connection.API
}

func newFactory() *Factory {
	return &Factory{
		In: os.Stdin, Out: show.Safe(os.Stdout), Err: show.Safe(os.Stderr), Raw: os.Stdout,
		Env: os.Getenv, WorkDir: os.Getwd, Now: time.Now, Sleep: sleep,
		CanPrompt: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		Dial: func(ctx context.Context, s connection.Settings) (connection.API, error) {
			c, err := connection.Dial(ctx, s)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// addFlags adds the flags that every verb has.
func (f *Factory) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.format, "output", "o", "text", "output format: text, json or yaml")
	flags.StringVar(&f.conn.Address, "address", "", "Temporal server, host:port (TEMPORAL_ADDRESS)")
	flags.StringVar(&f.as, "as", "", "name of the caller, where no identity has to be proven; default user@host (CONVERGE_BY)")
	flags.StringVarP(&f.conn.Namespace, "namespace", "n", "", "Temporal namespace (TEMPORAL_NAMESPACE)")
	flags.StringVar(&f.token, "token", "", "OIDC ID token that proves the caller's identity, or none to ignore a login (CONVERGE_TOKEN)")
	f.signedBy = &signer{tokens: map[string]string{}}
	flags.BoolVar(&f.sign, "sign", false, "have the issuer of converge login sign this one act, in a browser (CONVERGE_SIGN_COMMAND: by a command)")
	flags.BoolVar(&f.encrypt, "encrypt-payloads", false, "encrypt the payloads that Temporal stores, with the first key of CONVERGE_STORE_KEY (CONVERGE_ENCRYPT_PAYLOADS)")
	flags.StringVar(&f.conn.Profile, "profile", "", "profile in Temporal's configuration file (TEMPORAL_PROFILE)")
}

// outputFormats are the values of --output.
var outputFormats = []string{"text", "json", "yaml"}

// structured reports whether the output is for programs: JSON or YAML.
func (f *Factory) structured() bool { return f.format == "json" || f.format == "yaml" }

// checkFormat refuses an unknown --output.
func (f *Factory) checkFormat() error {
	if !slices.Contains(outputFormats, f.format) {
		return fmt.Errorf("--output %q: expected text, json or yaml", f.format)
	}
	return nil
}

func (f *Factory) screen() show.Screen {
	screen := show.NewScreen(f.Out, f.Env)
	screen.YAML = f.format == "yaml"
	return screen
}

// note prints a message on stderr.
func (f *Factory) note(format string, args ...any) { fmt.Fprintf(f.Err, format+"\n", args...) }

// client connects at the first call, and returns the same connection afterwards.
func (f *Factory) client(ctx context.Context) (connection.API, error) {
	if f.api != nil {
		return f.api, nil
	}
	payloads, err := f.codec()
	if err != nil {
		return nil, err
	}
	f.conn.Payloads = payloads
	if err := f.trace(ctx); err != nil {
		return nil, err
	}
	api, err := f.Dial(ctx, f.conn)
	if err != nil {
		return nil, err
	}
	f.api = api
	return api, nil
}

// codec returns the codec that encrypts and decrypts payloads.
func (f *Factory) codec() (*codec.Codec, error) {
	setting := f.Env(codec.Setting)
	if f.encrypt {
		setting = "true"
	}
	return codec.Load(f.Env("CONVERGE_STORE_KEY"), setting)
}

// trace starts tracing of this command, if a collector is configured. A worker begins no traces of its own.
func (f *Factory) trace(ctx context.Context) (err error) {
	if f.tracing != nil {
		return nil
	}
	if f.tracing, err = tracing.Start(ctx, "converge", f.Env); err != nil || f.tracing == nil {
		return err
	}
	interceptor, err := f.tracing.Client()
	f.conn.Interceptors = append(f.conn.Interceptors, interceptor)
	return err
}

func (f *Factory) close() {
	if f.api != nil {
		f.api.Close()
	}
	f.tracing.Stop()
}

// by returns the name of the caller: --as, $CONVERGE_BY, otherwise user@host.
func (f *Factory) by() string {
	if by := first(f.as, f.Env("CONVERGE_BY")); by != "" {
		return by
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	} else if uid := os.Getuid(); uid >= 0 { // in a container it often has no entry
		name = "uid-" + strconv.Itoa(uid)
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// confirm asks for confirmation before an act affects more than one service. Without a terminal, --yes is required.
func (f *Factory) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !f.CanPrompt {
		return fmt.Errorf("%s requires --yes when not running interactively", question)
	}
	fmt.Fprintf(f.Err, "%s? [y/N] ", question)
	answered := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(f.In).ReadString('\n') // the end of input means no
		answered <- answer
	}()
	var answer string
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer = <-answered:
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fmt.Errorf("not confirmed; nothing changed")
	}
	return nil
}

// confirmAll asks for confirmation before an act affects more than one service of an application.
func (f *Factory) confirmAll(ctx context.Context, yes bool, verb string, names []connection.ServiceName) error {
	if len(names) < 2 {
		return nil
	}
	return f.confirm(ctx, yes, fmt.Sprintf("%s %d services of %s", verb, len(names), names[0].Application))
}

// newRunE returns the RunE of a verb: read parses the arguments into the options o, then run executes. A test passes runF to inspect
// the options instead.
func newRunE[O any](o *O, runF func(context.Context, *O) error, run func(context.Context) error, parse func(args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := parse(args); err != nil {
			return err
		}
		if runF != nil {
			return runF(cmd.Context(), o)
		}
		return run(cmd.Context())
	}
}

// parseServiceArgs reads SVC, and the arguments after it into rest.
func (f *Factory) parseServiceArgs(args []string, service *connection.ServiceName, rest ...*string) (err error) {
	for i, word := range args[1:] {
		*rest[i] = word
	}
	*service, err = f.parseService(args[0])
	return err
}

// parseDirArg reads [DIR]: the working directory when it is left out.
func parseDirArg(dir *string) func([]string) error {
	return func(args []string) error {
		*dir = first(append(args, ".")...)
		return nil
	}
}

// argsFromUse checks that the number of arguments matches one of the forms in the usage line of a command. Arguments in brackets are
// optional.
func argsFromUse(cmd *cobra.Command, args []string) error {
	for _, form := range usageForms(cmd) {
		optional := 0
		for _, word := range form {
			if strings.HasPrefix(word, "[") {
				optional++
			}
		}
		if len(args) >= len(form)-optional && len(args) <= len(form) {
			return nil
		}
	}
	path := cmd.CommandPath()
	if !cmd.HasParent() { // without a parent, in a test
		path = "converge " + path
	}
	text := fmt.Sprintf("usage: %s%s", path, strings.TrimPrefix(cmd.Use, cmd.Name()))
	if example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n"); example != "" {
		text += "; for example: " + example
	}
	return errors.New(text)
}

// nameChannelByFlag lets every command that has CHANNEL among its arguments take --channel in its place.
func nameChannelByFlag(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		nameChannelByFlag(c)
	}
	at, joint := -1, false
	for _, form := range usageForms(cmd) {
		if n := slices.IndexFunc(form, func(word string) bool { return strings.Trim(word, "[]") == "CHANNEL" }); n >= 0 {
			at, joint = n, slices.Contains(form[:n], "VERSION")
		}
	}
	if at < 0 || !cmd.Runnable() || cmd.Flags().Lookup("channel") != nil {
		return
	}
	channel := cmd.Flags().StringP("channel", "c", "", "release channel, in place of CHANNEL")
	inserted := func(args []string) []string {
		n := at
		if joint && len(expandJoint(args)) > len(args) {
			n-- // APP@ID is in place of SVC VERSION
		}
		if !cmd.Flags().Changed("channel") || n > len(args) {
			return args
		}
		return slices.Insert(slices.Clone(args), n, *channel)
	}
	check, run := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error { return check(cmd, inserted(args)) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd, inserted(args)) }
}
