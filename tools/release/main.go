// Command release builds what a release consists of, for each platform: archives of the programs, with completions and man pages, and
// SHA256SUMS, packages for Debian and Red Hat, and with a key the signature of the sums and the provenance of everything.
//
//	go -C tools/release run . [-out DIR] [-platforms linux/amd64,darwin/arm64] [-key FILE]
//
// From its artefacts it makes images for containers: into an OCI layout, archives that `docker load` reads, or a registry.
//
//	go -C tools/release run . images [-release DIR] [-layout DIR] [-archives DIR] [-push PREFIX [-key FILE]]
//
// It needs Go and git. The version is the one that Go stamps into the programs of a checkout: its tag, or a pseudo-version of its commit.
// The same commit, built by the same Go, gives the same bytes, in every directory and at any time. A checkout with changes is refused: no
// version would say what its programs are made of.
package main

import (
	"context"
	"errors"
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
	err := error(nil)
	if len(os.Args) > 1 && os.Args[1] == "images" {
		err = makeImages(ctx, os.Args[2:], os.Stdout)
	} else {
		err = makeRelease(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// released is where the artefacts of a release are by default.
var released = filepath.Join("..", "..", "bin", "release")

// keyUsage is what -key is.
const keyUsage = "private key that signs, ECDSA on P-256 in PEM (PKCS #8); empty: nothing is signed"

func makeRelease(ctx context.Context, args []string, out io.Writer) error {
	r := release{out: out}
	var named, key string
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.source, "source", filepath.Join("..", ".."), "checkout to build")
	flags.StringVar(&r.dir, "out", released, "directory of the artefacts: a new one, or that of an earlier release, which is replaced")
	flags.StringVar(&named, "platforms", platforms, "GOOS/GOARCH, several with commas")
	flags.StringVar(&key, "key", "", keyUsage)
	if err := parse(flags, args); err != nil {
		return err
	}
	err := r.parse(named)
	if err == nil && key != "" {
		r.signer, err = readSigner(key)
	}
	if err != nil {
		return err
	}
	return r.build(ctx)
}

// parse parses flags, and refuses anything else.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	return nil
}

func makeImages(ctx context.Context, args []string, out io.Writer) error {
	var from, to, archives, prefix, key string
	flags := flag.NewFlagSet("release images", flag.ContinueOnError)
	flags.StringVar(&from, "release", released, "directory of the artefacts of a release")
	flags.StringVar(&to, "layout", "", "new directory: an OCI layout of all images")
	flags.StringVar(&archives, "archives", "", "directory of archives for docker load, one for each image and platform")
	flags.StringVar(&prefix, "push", "", "registry and path to push the images under, such as ghcr.io/converge-engine")
	flags.StringVar(&key, "key", "", keyUsage)
	if err := parse(flags, args); err != nil {
		return err
	}
	if to == "" && archives == "" && prefix == "" {
		return errors.New("images: expected -layout, -archives or -push")
	}
	var signs *signer
	if key != "" {
		var err error
		if signs, err = readSigner(key); err != nil {
			return err
		}
	}
	set, err := readImages(from)
	if err == nil && to != "" {
		err = set.writeLayout(to)
	}
	if err == nil && archives != "" {
		err = set.writeArchives(archives)
	}
	if err == nil && prefix != "" {
		err = set.push(ctx, prefix, signs, out)
	}
	return err
}

// platform is a pair that Go can build for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// release is a release of a checkout.
type release struct {
	source    string // checkout
	dir       string // of the artefacts
	platforms []platform
	signer    *signer   // nil: nothing is signed
	out       io.Writer // progress

	committed time.Time // of the commit, which all files are dated with
	commit    string
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
	if r.signer == nil {
		fmt.Fprintln(r.out, "not signed: there is no -key")
	} else if err := r.sign(ctx, complete); err != nil {
		return fmt.Errorf("sign: %w", err)
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
