package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

//go:embed acceptance
var acceptanceFiles embed.FS

// acceptanceOptions are those of acceptance: a tiny service of its own, and the place where it runs.
type acceptanceOptions struct {
	f        *Factory
	kind     string            // folder of acceptance/
	values   map[string]string // what stands for the words in capitals there
	versions []string
	broken   string
	timeout  time.Duration
	store    string
}

func newCmdAcceptance(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acceptance",
		Short: "Try a real cluster or account with a tiny service of its own",
		Long: `Try everything that a place has to do, where it really is: a service of its own is
released, released again, broken, taken back and removed, by the verbs that people use
and the workers that run. Each thing is printed with whether it held. What was made for
it is removed, whatever happened; the application stays, without services.`,
		Example: `  converge acceptance kubernetes --context eks-eu
  converge acceptance ecs --cluster test --region eu-west-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCmdAcceptanceKubernetes(f, runF), newCmdAcceptanceECS(f, runF))
	return cmd
}

func newCmdAcceptanceKubernetes(f *Factory, runF func(context.Context, *acceptanceOptions) error) *cobra.Command {
	o := &acceptanceOptions{f: f, kind: "kubernetes"}
	var at, namespace, image string
	cmd := &cobra.Command{
		Use:     "kubernetes",
		Short:   "Try a cluster",
		Example: `  converge acceptance kubernetes --context eks-eu --in default`,
		Args:    cobra.NoArgs,
		RunE: running(o, runF, o.run, func([]string) error {
			o.values = map[string]string{"CONTEXT": at, "NAMESPACE": namespace, "IMAGE": image, "FAILAFTER": "10s"}
			return o.check()
		}),
	}
	cmd.Flags().StringVar(&at, "context", "", "context in the kubeconfig of the workers (default: its current one)")
	cmd.Flags().StringVar(&namespace, "in", "default", "namespace of the cluster, which has to exist")
	cmd.Flags().StringVar(&image, "image", "registry.k8s.io/pause", "image that can be pulled there")
	o.flags(cmd, 10*time.Minute)
	return cmd
}

func (o *acceptanceOptions) flags(cmd *cobra.Command, patience time.Duration) {
	cmd.Flags().StringSliceVar(&o.versions, "versions", []string{"3.9", "3.10"}, "two tags of the image that work")
	cmd.Flags().StringVar(&o.broken, "broken", "nopull", "a tag of it that does not exist")
	cmd.Flags().DurationVar(&o.timeout, "timeout", patience, "for each thing that is tried")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
}

// check refuses what would be more than a value where it is put into a file.
func (o *acceptanceOptions) check() error {
	if len(o.versions) != 2 || o.versions[0] == o.versions[1] {
		return errors.New("--versions: expected two different tags")
	}
	if o.f.givesToken() {
		return errors.New("a token serves one request, and this makes several: log in with converge login instead")
	}
	for _, name := range entities.SortedKeys(o.values) {
		if strings.ContainsAny(o.values[name], "\"\\\n${}") {
			return fmt.Errorf("%q cannot stand in a configuration; expected a name", o.values[name])
		}
	}
	return nil
}

// trial is one thing that is tried: a command line, how it has to end, and what has to be so then.
type trial struct {
	what   string
	args   []string
	exit   int
	before func() error
	then   func(protocol.ChannelStatus) error
	gone   bool // it is asked again and again, until nothing of the service is left
}

// run tries one thing after the other. Where one does not hold the rest has no meaning, but what was made is removed.
func (o *acceptanceOptions) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "converge-acceptance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := "acceptance-" + strings.ToLower(rand.Text()[:6])
	o.values["APPLICATION"] = name
	if err := o.write(dir); err != nil {
		return err
	}
	trials, removal := o.trials(dir, name), o.removal(dir, name)
	held, removed := o.hold(ctx, name+"/web", trials), 0
	if held > 0 {
		removed = o.hold(context.WithoutCancel(ctx), name+"/web", removal)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if held+removed < len(trials)+len(removal) {
		return exit(exitFailed)
	}
	return o.f.screen().Lines("all of it holds")
}

func (o *acceptanceOptions) trials(dir, name string) []trial {
	web, patience := name+"/web", o.timeout.String()
	runs := func(version string) func(protocol.ChannelStatus) error {
		return func(c protocol.ChannelStatus) error {
			if c.Current != version || len(c.Objects) == 0 {
				return fmt.Errorf("it runs %q with %d objects", c.Current, len(c.Objects))
			}
			return nil
		}
	}
	good, better := o.versions[0], o.versions[1]
	return []trial{
		{what: "a configuration is published", args: o.apply(dir)},
		{what: "a service is created", args: []string{"release", web, good, "--wait", "--timeout", patience}, then: runs(good)},
		{what: "another version takes its place", args: []string{"release", web, better, "--wait", "--timeout", patience}, then: runs(better)},
		{what: "a broken version is found out and taken back", args: []string{"release", web, o.broken, "--wait", "--timeout", patience}, exit: exitFailed, then: runs(better)},
		{what: "why is explained", args: []string{"explain", web, "only"}},
		{what: "a person rolls back", args: []string{"rollback", web, "--reason", "acceptance"}},
		{what: "and the version before runs", args: []string{"wait", web, "--timeout", patience}, exit: exitFailed, then: runs(good)},
	}
}

func (o *acceptanceOptions) removal(dir, name string) []trial {
	return []trial{
		{
			what: "its removal is asked for", args: append(o.apply(dir), "--remove", name+"/web", "--reason", "acceptance", "--yes"),
			before: func() error { return os.Remove(filepath.Join(dir, "web.converge.yaml")) },
		},
		{what: "nothing of it is left", gone: true, args: []string{"status", name + "/web", "--output", "json"}},
	}
}

func (o *acceptanceOptions) apply(dir string) []string {
	args := []string{"apply", dir}
	if o.store != "" {
		args = append(args, "--store", o.store)
	}
	return args
}

// hold tries things in order, prints each, and tells how many held.
func (o *acceptanceOptions) hold(ctx context.Context, service string, trials []trial) int {
	for n, t := range trials {
		began := time.Now()
		said, err := o.try(ctx, service, t)
		if errors.Is(context.Cause(ctx), errInterrupted) {
			return n
		}
		if err != nil {
			_ = o.f.screen().Lines(fmt.Sprintf("FAIL  %s: %v", t.what, err), "      converge "+strings.Join(t.args, " "))
			for line := range strings.Lines(said) {
				_ = o.f.screen().Lines("      " + strings.TrimRight(line, "\n"))
			}
			return n
		}
		_ = o.f.screen().Lines(fmt.Sprintf("ok    %s (%s)", t.what, time.Since(began).Round(100*time.Millisecond)))
	}
	return len(trials)
}

// try carries out one command line, and looks at what came of it.
func (o *acceptanceOptions) try(ctx context.Context, service string, t trial) (said string, err error) {
	if t.before != nil {
		if err := t.before(); err != nil {
			return "", err
		}
	}
	if t.gone {
		return o.await(ctx, t.args)
	}
	said, code := o.carryOut(ctx, t.args...)
	if code != t.exit {
		return said, fmt.Errorf("exit status %d, expected %d", code, t.exit)
	}
	if t.then == nil {
		return said, nil
	}
	out, code := o.carryOut(ctx, "status", service, "--output", "json")
	var s protocol.Status
	if err := json.Unmarshal([]byte(out), &s); code != exitDone || err != nil || len(s.Channels) != 1 {
		return said + out, errors.New("its status cannot be read")
	}
	return said + out, t.then(s.Channels[0])
}

// await asks for the status until nothing of the service is left.
func (o *acceptanceOptions) await(ctx context.Context, args []string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for {
		said, _ = o.carryOut(ctx, args...)
		var s protocol.Status
		if json.Unmarshal([]byte(said), &s) == nil && s.Status == string(entities.StatusDeleted) {
			return said, nil
		}
		if o.f.Sleep(ctx, pollSlow) != nil {
			return said, fmt.Errorf("it is %s after %s", first(s.Status, "not known to be gone"), o.timeout)
		}
	}
}

// carryOut is a command line as a person gives it, over the same connection.
func (o *acceptanceOptions) carryOut(ctx context.Context, args ...string) (said string, code int) {
	var out bytes.Buffer
	f := *o.f
	f.In, f.Out, f.Err, f.AskTTY, f.api = strings.NewReader(""), &out, &out, false, nil
	for flag, value := range map[string]string{"token": o.f.token, "address": o.f.conn.address, "namespace": o.f.conn.namespace, "profile": o.f.conn.profile} {
		if value != "" {
			args = append(args, "--"+flag, value)
		}
	}
	if o.f.encrypt {
		args = append(args, "--encrypt-payloads")
	}
	code = run(ctx, &f, args)
	return out.String(), code
}

// write writes the configuration, with the values in their places.
func (o *acceptanceOptions) write(dir string) error {
	from, err := fs.Sub(acceptanceFiles, "acceptance/"+o.kind)
	if err != nil {
		return err
	}
	return fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, path)
		if err != nil {
			return err
		}
		text := string(data)
		for _, name := range entities.SortedKeys(o.values) {
			text = strings.ReplaceAll(text, name, o.values[name])
		}
		return os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600)
	})
}
