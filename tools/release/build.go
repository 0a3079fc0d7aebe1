package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program is a program of the checkout, in cmd.
type program struct {
	name, tags string
	onlyOn     string // GOOS; empty: every one
}

// bundle is an archive for each platform.
type bundle struct {
	name     string
	programs []program
	shared   bool // it has the files that all platforms share, and is in packages for Linux
}

// bundles are what users install: the program with those that it starts, and the server for a laptop, which is larger than all of these.
// The tag is that of cmd/internal/program.
var bundles = []bundle{
	{"converge", []program{{name: "converge"}, {name: "converge-render"}, {name: "converge-wrapper", onlyOn: "linux"}}, true},
	{"converge-dev", []program{{name: "converge-dev", tags: "disable_grpc_modules"}}, false},
}

// readCheckout refuses a checkout with changes, and reads its commit and the time of that.
func (r *release) readCheckout(ctx context.Context) error {
	changed, err := r.run(ctx, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(changed, "\n"); first != "" {
		return fmt.Errorf("the checkout has changes, such as %q; commit or remove them", strings.TrimSpace(first))
	}
	text, err := r.run(ctx, nil, "git", "log", "-1", "--format=%ct %H")
	if err != nil {
		return err
	}
	at, commit, _ := strings.Cut(strings.TrimSpace(text), " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	r.committed, r.commit = time.Unix(seconds, 0).UTC(), commit
	return nil
}

// compile builds a program for a platform: static, without paths of this machine, with the version of the checkout. It returns its path.
func (r *release) compile(ctx context.Context, p platform, prog program, work string) (string, error) {
	path := filepath.Join(work, p.os+"_"+p.arch, prog.name)
	started := time.Now()
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOFLAGS="}
	if _, err := r.run(ctx, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-tags="+prog.tags, "-o", path, "./cmd/"+prog.name); err != nil {
		return "", err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", err
	}
	switch {
	case info.Main.Version == "" || info.Main.Version == "(devel)":
		return "", fmt.Errorf("%s has no version; expected a checkout with its history in git", prog.name)
	case r.version == "":
		r.version = info.Main.Version
	case r.version != info.Main.Version:
		return "", fmt.Errorf("%s has the version %s, others %s: the checkout changed meanwhile", prog.name, info.Main.Version, r.version)
	}
	fmt.Fprintf(r.out, "%s for %s, %.0f s\n", prog.name, p, time.Since(started).Seconds())
	return path, nil
}

// sharedFiles are those that are the same on every platform: license, changelog, completions and man pages.
func (r *release) sharedFiles(ctx context.Context, work string) (files []file, err error) {
	for _, name := range []string{"LICENSE", "CHANGELOG.md"} {
		content, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, content})
	}
	own, err := r.compile(ctx, platform{runtime.GOOS, runtime.GOARCH}, program{name: "converge"}, work)
	if err != nil {
		return nil, err
	}
	for shell, name := range map[string]string{"bash": "converge.bash", "zsh": "_converge", "fish": "converge.fish"} {
		text, err := r.run(ctx, nil, own, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"completions/" + name, 0o644, []byte(text)})
	}
	pages, err := manPages(filepath.Join(r.source, "docs", "cli"), r.committed)
	return append(files, pages...), err
}

// buildPlatform builds the archives of a platform.
func (r *release) buildPlatform(ctx context.Context, p platform, work, complete string, shared []file) error {
	units, err := systemFiles(p)
	if err != nil {
		return err
	}
	for _, b := range bundles {
		var files []file
		for _, prog := range b.programs {
			if prog.onlyOn != "" && prog.onlyOn != p.os {
				continue
			}
			path, err := r.compile(ctx, p, prog, work)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			parts, err := sbom(path)
			if err != nil {
				return fmt.Errorf("%s: %w", prog.name, err)
			}
			files = append(files, file{prog.name, 0o755, content}, file{"sbom/" + prog.name + ".cdx.json", 0o644, parts})
		}
		if b.shared {
			files = slices.Concat(files, shared, units)
		}
		name := fmt.Sprintf("%s_%s_%s_%s", b.name, strings.TrimPrefix(r.version, "v"), p.os, p.arch)
		if err := writeArchive(filepath.Join(complete, name+".tar.gz"), name, files, r.committed); err != nil {
			return err
		}
		if b.shared && p.os == "linux" {
			if err := r.writePackages(p, name, files, work, complete); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a command in the checkout and returns its output.
func (r *release) run(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.source
	if filepath.IsAbs(name) {
		cmd.Dir = ""
	}
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return string(out), nil
}
