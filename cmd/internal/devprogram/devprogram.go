// Package devprogram finds converge-dev, the program with the Temporal server inside, and becomes it.
//
// The server multiplies the size, the build and the start-up of whatever links it, and only `converge dev` wants it: so
// it is a program of its own, which a newcomer must not have to know. Looked for are, in this order, a converge-dev
// beside this executable (installed or built together), the checkout of Converge that the working directory is in (as
// with `go run ./cmd/converge dev`), from which it is built, and the PATH. The checkout comes before the PATH, since who
// works on the code expects the code to run and not what was installed last month.
//
// It may import only the standard library and golang.org/x.
package devprogram

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

const (
	// Name is the name of the program.
	Name = "converge-dev"

	module         = "github.com/converge-engine/converge"
	mainPackage    = "cmd/" + Name
	installCommand = "go install " + module + "/" + mainPackage + "@latest"
)

// Exec replaces this process by converge-dev with these arguments: same process id, terminal and environment, so that
// Ctrl-C reaches it and nothing stays in between. It returns only an error. When converge-dev has to be built first it
// says so on stderr, and how far it is; ctx ends the build.
func Exec(ctx context.Context, args []string, stderr io.Writer) error {
	l := &launcher{
		executable: os.Executable,
		workDir:    os.Getwd,
		cacheDir:   os.UserCacheDir,
		lookPath:   exec.LookPath,
		version:    versionOf,
		replace:    syscall.Exec,
		progress:   progress{out: stderr, terminal: isTerminal(stderr), patience: 2 * time.Second},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		l.own = info.Main.Version
	}
	return l.exec(ctx, args)
}

// launcher holds what the search and the build ask of the system.
type launcher struct {
	executable, workDir, cacheDir func() (string, error)
	lookPath                      func(name string) (string, error)
	version                       func(path string) (string, error)
	replace                       func(path string, argv, env []string) error
	own                           string // version of this program
	progress                      progress
}

func (l *launcher) exec(ctx context.Context, args []string) error {
	path, err := l.locate(ctx)
	if err != nil {
		return fmt.Errorf("find %s: %w", Name, err)
	}
	err = l.replace(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
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
	if path, err := l.lookPath(Name); err == nil {
		return path, l.checkVersion(path)
	}
	if inCheckout {
		return "", fmt.Errorf("it could be built from %s, but there is no go command on the PATH", checkout)
	}
	return "", fmt.Errorf("it is neither beside this program nor on the PATH; install it with\n\t%s", installCommand)
}

// besideExecutable looks in the directory of this program's file and, should that be a link, of the file linked to.
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
		path := filepath.Join(filepath.Dir(candidate), Name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// checkVersion refuses a program of that name which is not ours and warns of one from another release: it would speak
// to workflows of its own version, with commands of this one.
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
