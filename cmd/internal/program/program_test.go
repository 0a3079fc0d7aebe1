package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"
)

// fixture is a file system with the files of a test case, and a launcher that sees only those.
type fixture struct {
	t      *testing.T
	dir    string
	stderr strings.Builder
	ran    []string // path and arguments of the program that would have replaced this one
	*launcher
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{t: t, dir: t.TempDir()}
	under := func(name string) func() (string, error) {
		return func() (string, error) { return filepath.Join(s.dir, name), nil }
	}
	s.launcher = &launcher{
		Program:    Dev,
		executable: under("bin/converge"),
		workDir:    under("work"),
		cacheDir:   under("cache"),
		lookPath: func(name string) (string, error) {
			path := filepath.Join(s.dir, "path", name)
			if _, err := os.Stat(path); err != nil {
				return "", exec.ErrNotFound
			}
			return path, nil
		},
		version: func(string) (string, error) { return "v1.0.0", nil },
		replace: func(path string, argv, _ []string) error {
			require.Equal(t, path, argv[0])
			s.ran = append([]string{s.relative(path)}, argv[1:]...)
			return errors.New("replaced")
		},
		own:      "v1.0.0",
		progress: progress{out: &s.stderr, delay: time.Hour},
	}
	return s
}

func (s *fixture) relative(path string) string {
	relative, err := filepath.Rel(s.dir, path)
	require.NoError(s.t, err)
	return relative
}

func (s *fixture) write(name, content string, mode os.FileMode) {
	path := filepath.Join(s.dir, name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(s.t, os.WriteFile(path, []byte(content), mode))
}

func (s *fixture) program(name string) { s.write(name, "", 0o755) }

// goCommand puts a go command on the PATH that runs these lines of shell instead of a build.
func (s *fixture) goCommand(lines ...string) {
	programtest.Write(s.t, filepath.Join(s.dir, "path/go"), "#!/bin/sh\nset -e\n"+strings.Join(lines, "\n")+"\n")
}

// checkoutAt makes a checkout, with the working directory deep inside it.
func (s *fixture) checkoutAt(name string) {
	s.write(name+"/go.mod", "// Converge.\nmodule "+module+" // import\n\ngo 1.26\n", 0o644)
	s.write(name+"/"+Dev.mainPackage()+"/main.go", "package main", 0o644)
	s.write(name+"/tools/go.mod", "module "+module+"/tools\n", 0o644)
	s.workDir = func() (string, error) { return filepath.Join(s.dir, name, "tools", "deep"), nil }
	s.source = filepath.Join(s.dir, name)
}

func (s *fixture) run(args ...string) error { return s.exec(context.Background(), args) }

func TestProgramLookup(t *testing.T) {
	t.Parallel()
	cached := "cache/converge/" + Dev.Name + "-"
	for _, row := range []struct {
		name string
		set  func(*fixture)
		ran  string
	}{
		{"next to this executable, first of all", func(s *fixture) {
			s.program("bin/" + Dev.Name)
			s.program("path/" + Dev.Name)
			s.checkoutAt("src")
			s.goCommand("exit 1")
		}, "bin/" + Dev.Name},
		{"next to the target of the executable's link", func(s *fixture) {
			s.program("opt/converge")
			s.program("opt/" + Dev.Name)
			require.NoError(s.t, os.Mkdir(filepath.Join(s.dir, "bin"), 0o755))
			require.NoError(s.t, os.Symlink("../opt/converge", filepath.Join(s.dir, "bin/converge")))
		}, "opt/" + Dev.Name},
		{"not next to it if it is not executable", func(s *fixture) {
			s.write("bin/"+Dev.Name, "", 0o644)
			s.program("path/" + Dev.Name)
		}, "path/" + Dev.Name},
		{"built from the checkout, before what is installed", func(s *fixture) {
			s.checkoutAt("src")
			s.goCommand()
			s.program("path/" + Dev.Name)
		}, cached},
		{"on the path", func(s *fixture) { s.program("path/" + Dev.Name) }, "path/" + Dev.Name},
		{"on the path if there is no go command to build the checkout", func(s *fixture) {
			s.checkoutAt("src")
			s.program("path/" + Dev.Name)
		}, "path/" + Dev.Name},
		{"on the path when this program was compiled from another checkout", func(s *fixture) {
			s.checkoutAt("forged")
			s.source = filepath.Join(s.dir, "src")
			s.goCommand("exit 1")
			s.program("path/" + Dev.Name)
		}, "path/" + Dev.Name},
		{"on the path if the source of this program is unknown", func(s *fixture) {
			s.checkoutAt("forged")
			s.source = ""
			s.goCommand("exit 1")
			s.program("path/" + Dev.Name)
		}, "path/" + Dev.Name},
		{"on the path if the enclosing module is another one", func(s *fixture) {
			s.write("work/go.mod", "module example.com/shop\n", 0o644)
			s.goCommand("exit 1")
			s.program("path/" + Dev.Name)
		}, "path/" + Dev.Name},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			row.set(s)
			require.ErrorContains(t, s.run("examples/hello", "--port", "7233"), "replaced")
			require.Len(t, s.ran, 4)
			require.True(t, strings.HasPrefix(s.ran[0], row.ran), s.ran[0])
			require.Equal(t, []string{"examples/hello", "--port", "7233"}, s.ran[1:])
			require.Empty(t, s.stderr.String())
		})
	}
}

// A forged checkout inside the real one is ignored.
func TestForgedCheckoutInsideTheSource(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.checkoutAt("src/examples/forged")
	workDir := s.workDir
	s.checkoutAt("src")
	s.workDir = workDir
	s.goCommand(`case "$PWD" in *forged*) exit 1;; esac`)
	require.ErrorContains(t, s.run(), "replaced")
}

// This program was compiled from the checkout that contains these tests.
func TestSourceRoot(t *testing.T) {
	t.Parallel()
	require.True(t, sameDirectory(sourceRoot(), filepath.Join("..", "..", "..")))
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	require.EqualError(t, s.run(), "find converge-dev: it is neither next to this program nor on the PATH; install it with\n"+
		"\tgo install github.com/converge-engine/converge/cmd/converge-dev@latest, or run this in a checkout of Converge")

	s.checkoutAt("src")
	require.EqualError(t, s.run(), fmt.Sprintf(
		"find converge-dev: it could be built from %s, but there is no go command on the PATH", filepath.Join(s.dir, "src")))
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ own, found, said string }{
		{"v1.0.0", "v1.0.0", ""},
		{"v1.1.0", "v1.0.0", "warning: DIR/bin/converge-dev is v1.0.0, this program is v1.1.0; install both together\n"},
		{"(devel)", "v1.0.0", ""},
		{"v1.0.0", "(devel)", ""},
	} {
		s := newFixture(t)
		s.program("bin/" + Dev.Name)
		s.own = row.own
		s.version = func(string) (string, error) { return row.found, nil }
		require.ErrorContains(t, s.run(), "replaced")
		require.Equal(t, row.said, strings.ReplaceAll(s.stderr.String(), s.dir, "DIR"))
	}

	s := newFixture(t)
	s.program("bin/" + Dev.Name)
	s.version = func(string) (string, error) { return "", errors.New("not a program of Converge") }
	require.EqualError(t, s.run(), "find converge-dev: "+filepath.Join(s.dir, "bin", Dev.Name)+": not a program of Converge")
	require.Nil(t, s.ran)
}

func TestVersionOfForeignProgram(t *testing.T) {
	t.Parallel()
	goCommand, err := exec.LookPath("go")
	require.NoError(t, err)
	_, err = versionOf(goCommand)
	require.EqualError(t, err, "not a program of Converge")
	_, err = versionOf("program_test.go")
	require.Error(t, err)
}

func TestBuildCommand(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.checkoutAt("src")
	s.goCommand(`echo "$PWD $@ GOTMPDIR=$GOTMPDIR" > ../call`)
	require.ErrorContains(t, s.run(), "replaced")
	call, err := os.ReadFile(filepath.Join(s.dir, "call"))
	require.NoError(t, err)
	program := s.ran[0]
	require.Regexp(t, `^cache/converge/converge-dev-[0-9a-f]{12}$`, program)
	require.Equal(t, fmt.Sprintf("DIR/src build -v -buildvcs=false -tags=disable_grpc_modules -ldflags=-s -w -o DIR/%s ./cmd/converge-dev GOTMPDIR=DIR/cache/converge\n", program),
		strings.ReplaceAll(string(call), s.dir, "DIR"))

	s.checkoutAt("other")
	require.ErrorContains(t, s.run(), "replaced")
	require.NotEqual(t, program, s.ran[0], "each checkout has its own")
}

func TestFailedBuild(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.checkoutAt("src")
	s.goCommand(
		"echo go.temporal.io/server/temporal >&2",
		"echo '# github.com/converge-engine/converge/cmd/converge-dev' >&2",
		"printf 'cmd/converge-dev/main.go:7:2: undefined: x' >&2",
		"exit 1")
	require.EqualError(t, s.run(), "find converge-dev: build it from "+filepath.Join(s.dir, "src")+": exit status 1\n"+
		"# github.com/converge-engine/converge/cmd/converge-dev\n"+
		"cmd/converge-dev/main.go:7:2: undefined: x")
	require.Nil(t, s.ran)
}

func TestCancelledBuild(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.checkoutAt("src")
	s.goCommand("trap 'kill $!; exit 1' INT", "sleep 60 &", "echo started > ../started", "wait")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() {
		defer cancel()
		for range time.Tick(5 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(s.dir, "started")); err == nil || ctx.Err() != nil {
				return
			}
		}
	}()
	err := s.exec(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, s.ran)
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		progress progress
		there    bool
		exit     string
		said     string
	}{
		{"a quick build prints nothing", progress{delay: time.Hour}, false, "0", ""},
		{"the first build", progress{}, false, "0", "building converge-dev, which " + Dev.about + "\n  ready after 0s\n"},
		{"a later build", progress{}, true, "0", "checking whether converge-dev is up to date\n  ready after 0s\n"},
		{"on a terminal", progress{terminal: true}, true, "0", "checking whether converge-dev is up to date\n\r\x1b[K  ready after 0s\n"},
		{"a failing build", progress{}, true, "1", "checking whether converge-dev is up to date\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			row.progress.out = &s.stderr
			s.progress = row.progress
			s.checkoutAt("src")
			s.goCommand(`touch "$7"`)
			require.ErrorContains(t, s.run(), "replaced")
			if !row.there {
				require.NoError(t, os.Remove(filepath.Join(s.dir, s.ran[0])))
			}
			s.stderr.Reset()
			s.goCommand("exit " + row.exit)
			_ = s.run()
			require.Equal(t, row.said, s.stderr.String())
		})
	}
}

func TestProgressLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	progress{out: &out, terminal: true}.line("1m20s, 214 packages compiled")
	progress{out: &out}.line("1m30s, 220 packages compiled")
	require.Equal(t, "\r\x1b[K  1m20s, 214 packages compiled  1m30s, 220 packages compiled\n", out.String())
}

func TestBuildOutput(t *testing.T) {
	t.Parallel()
	o := &buildOutput{}
	for _, chunk := range []string{"go.temporal.io/ser", "ver/temporal\nmodernc.org/sqlite/lib\n# x/y\n", "gopkg.in/yaml.v3\ngo: downloading a v1.0.0\nend"} {
		n, err := o.Write([]byte(chunk))
		require.NoError(t, err)
		require.Equal(t, len(chunk), n)
	}
	require.Equal(t, counts{modules: 1, packages: 3}, o.count())
	require.Equal(t, "3 packages compiled", o.count().String())
	require.Equal(t, "1 modules downloaded", counts{modules: 1}.String())
	require.Equal(t, "# x/y\nend", o.messages())

	long := &buildOutput{}
	_, _ = long.Write([]byte(strings.Repeat("an error\n", 100)))
	require.Equal(t, 31, len(strings.Split(long.messages(), "\n")))
}
