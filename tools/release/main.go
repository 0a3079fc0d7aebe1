// Command release builds what a release consists of, for each platform: archives of the programs, with completions and man pages, and
// SHA256SUMS.
//
//	go -C tools/release run . [-out DIR] [-platforms linux/amd64,darwin/arm64]
//
// It needs Go and git. The version is the one that Go stamps into the programs of a checkout: its tag, or a pseudo-version of its commit.
// The same commit, built by the same Go, gives the same bytes, in every directory and at any time. A checkout with changes is refused: no
// version would say what its programs are made of.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// platforms are those that are built by default.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := release{out: os.Stdout}
	var named string
	flag.StringVar(&r.source, "source", filepath.Join("..", ".."), "checkout to build")
	flag.StringVar(&r.dir, "out", filepath.Join("..", "..", "bin", "release"), "directory of the artefacts: a new one, or that of an earlier release, which is replaced")
	flag.StringVar(&named, "platforms", platforms, "GOOS/GOARCH, several with commas")
	flag.Parse()
	err := r.parse(named)
	if err == nil {
		err = r.build(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// platform is a pair that Go can build for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// release is a release of a checkout.
type release struct {
	source    string // checkout
	dir       string // of the artefacts
	platforms []platform
	out       io.Writer // progress

	committed time.Time // of the commit, which all files are dated with
	version   string
}

func (r *release) parse(named string) error {
	for text := range strings.SplitSeq(named, ",") {
		system, arch, found := strings.Cut(text, "/")
		if !found || system == "" || arch == "" {
			return fmt.Errorf("-platforms %q: expected GOOS/GOARCH, such as linux/amd64", text)
		}
		r.platforms = append(r.platforms, platform{system, arch})
	}
	return nil
}

// build builds everything. Artefacts appear in the directory when all of them are complete.
func (r *release) build(ctx context.Context) error {
	if err := r.checkDir(); err != nil {
		return err
	}
	if err := r.readCheckout(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "converge-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) // the artefacts were copied
	complete := filepath.Join(work, "complete")
	if err := os.Mkdir(complete, 0o755); err != nil { //nolint:gosec // artefacts are for everybody
		return err
	}
	shared, err := r.sharedFiles(ctx, work)
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.buildPlatform(ctx, p, work, complete, shared); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := writeSums(complete); err != nil {
		return err
	}
	return r.publish(complete)
}

// checkDir refuses a directory that would be replaced and is not of a release.
func (r *release) checkDir() error {
	entries, err := os.ReadDir(r.dir)
	if os.IsNotExist(err) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(r.dir, sumsName)); err != nil {
		return fmt.Errorf("-out %s: it has files that are not of a release, such as %s; expected a new directory", r.dir, entries[0].Name())
	}
	return nil
}

// publish replaces the directory of the artefacts.
func (r *release) publish(complete string) error {
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil { //nolint:gosec // artefacts are for everybody
		return err
	}
	if err := os.CopyFS(r.dir, os.DirFS(complete)); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%s in %s\n", r.version, r.dir)
	return nil
}
