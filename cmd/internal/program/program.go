// Package program finds the programs of Converge that are separate from the command line because of what they link: converge-dev
// links a Temporal server, converge-render the engines of Helm and Kustomize. Each of these multiplies the size, the build time and the
// start-up time of a program, and most commands need neither. Users should not need to know about these programs.
//
// A launcher searches in this order: next to this executable (installed or built together); in the checkout that this program was
// compiled from, if the working directory is in it (as with `go run ./cmd/converge dev`), where it builds the program; and on the PATH.
// The checkout comes before the PATH, because a developer expects the current code, not last month's. No other checkout is built,
// because a directory that looks like one may be the configuration of another person.
//
// It may import only the standard library and golang.org/x.
package program

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/term"
)

const module = "github.com/converge-engine/converge"

// Program is a program that the launcher can find.
type Program struct {
	// Name is the name of its file, and of its folder in cmd.
	Name string
	// tags are its build tags.
	tags string
	// about is printed before its first build: what it contains, and how long the build takes.
	about string
}

// The programs. The numbers are for empty caches; the lines fit a narrow terminal.
var (
	// Dev runs a Temporal server, its Web UI and a worker, and follows a directory.
	//
	// The tag excludes 150 packages with which the server's archive on Google Cloud Storage finds balancers
	// (cloud.google.com/go/storage, "gRPC modules"). They cost half a minute of a processor and are unused here.
	Dev = Program{
		Name: "converge-dev", tags: "disable_grpc_modules",
		about: "contains a Temporal server and its Web UI:\n  about 180 modules and 2000 packages, a few minutes, only once",
	}
	// Render renders Helm charts and kustomizations.
	Render = Program{Name: "converge-render", about: "contains Helm and Kustomize: a minute, only once"}
)

func (p Program) mainPackage() string { return "cmd/" + p.Name }

func (p Program) installCommand() string {
	return "go install " + module + "/" + p.mainPackage() + "@latest"
}

// Exec replaces this process by the program with these arguments. Process id, terminal and environment stay the same, so that Ctrl-C
// reaches the program and no process stays in between. Exec returns only on an error. If it has to build the program first, it reports
// the progress on stderr; ctx cancels the build.
func (p Program) Exec(ctx context.Context, args []string, stderr io.Writer) error {
	return p.launcher(stderr).exec(ctx, args)
}

// Find returns the path of the program. It builds the program first if necessary.
func (p Program) Find(ctx context.Context, stderr io.Writer) (string, error) {
	return p.launcher(stderr).find(ctx)
}

func (p Program) launcher(stderr io.Writer) *launcher {
	l := &launcher{
		Program:    p,
		executable: os.Executable,
		workDir:    os.Getwd,
		source:     sourceRoot(),
		cacheDir:   os.UserCacheDir,
		lookPath:   exec.LookPath,
		version:    versionOf,
		replace:    syscall.Exec,
		progress:   progress{out: stderr, terminal: isTerminal(stderr), delay: 2 * time.Second},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		l.own = info.Main.Version
	}
	return l
}

// launcher contains the system functions that the search and the build use.
type launcher struct {
	Program
	executable, workDir, cacheDir func() (string, error)
	lookPath                      func(name string) (string, error)
	version                       func(path string) (string, error)
	replace                       func(path string, argv, env []string) error
	own                           string // version of this program
	source                        string // the checkout that this program was compiled from
	progress                      progress
}

func (l *launcher) exec(ctx context.Context, args []string) error {
	path, err := l.find(ctx)
	if err != nil {
		return err
	}
	err = l.replace(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

func (l *launcher) find(ctx context.Context) (string, error) {
	path, err := l.locate(ctx)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", l.Name, err)
	}
	return path, nil
}

func (l *launcher) locate(ctx context.Context) (string, error) {
	if path, ok := l.besideExecutable(); ok {
		return path, l.checkVersion(path)
	}
	checkout, inCheckout := l.checkout()
	if inCheckout {
		if goCommand, err := l.lookPath("go"); err == nil {
			return l.build(ctx, goCommand, checkout)
		}
	}
	if path, err := l.lookPath(l.Name); err == nil {
		return path, l.checkVersion(path)
	}
	if inCheckout {
		return "", fmt.Errorf("it could be built from %s, but there is no go command on the PATH", checkout)
	}
	return "", fmt.Errorf("it is neither next to this program nor on the PATH; install it with\n\t%s, or run this in a checkout of Converge", l.installCommand())
}

// besideExecutable searches the directory of this program's file, and, if that is a link, the directory of its target.
func (l *launcher) besideExecutable() (string, bool) {
	executable, err := l.executable()
	if err != nil {
		return "", false
	}
	candidates := []string{executable}
	if target, err := filepath.EvalSymlinks(executable); err == nil {
		candidates = append(candidates, target)
	}
	for _, candidate := range candidates {
		path := filepath.Join(filepath.Dir(candidate), l.Name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// checkVersion refuses a foreign program of that name. It warns about one from another release, because that would speak to workflows
// of its own version with commands of this version.
func (l *launcher) checkVersion(path string) error {
	found, err := l.version(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if found != l.own && found != "(devel)" && l.own != "(devel)" {
		fmt.Fprintf(l.progress.out, "warning: %s is %s, this program is %s; install both together\n", path, found, l.own)
	}
	return nil
}

func versionOf(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", err
	}
	if info.Main.Path != module {
		return "", errors.New("not a program of Converge")
	}
	return info.Main.Version, nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
