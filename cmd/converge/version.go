package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionOptions struct{ f *Factory }

func newCmdVersion(f *Factory, runF func(context.Context, *versionOptions) error) *cobra.Command {
	o := &versionOptions{f}
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Print the version of this program, the commit and the Go version that it was built with,
and its platform. It connects to nothing; for the versions of the workers:
converge admin worker versions.`,
		Example: `  converge version
  converge version --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return nil }),
	}
}

// build describes how this program was built.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`   // empty if it was not built from a checkout
	Modified bool   `json:"modified,omitempty"` // the checkout had changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: programVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (o *versionOptions) run(context.Context) error {
	b := thisBuild()
	if o.f.structured() {
		return o.f.screen().Document(b)
	}
	commit := ""
	if b.Commit != "" {
		commit = ", commit " + b.Commit[:min(12, len(b.Commit))]
	}
	if b.Modified {
		commit += " with changes"
	}
	_, err := fmt.Fprintf(o.f.Out, "converge %s%s, %s, %s\n", b.Version, commit, b.Go, b.Platform)
	return err
}
