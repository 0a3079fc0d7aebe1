// Package packages installs the artefacts of a release on this machine, by the commands of docs/install.md, and removes them again.
package packages

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

const (
	page     = "../../docs/install.md"
	units    = "/usr/lib/systemd/system"
	settings = "/etc/converge/converge.env"
	state    = "/var/lib/converge"
)

var shared = stage.New(nil)

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// shell runs lines of the page where the artefacts of the release are.
type shell struct {
	t       *testing.T
	dir     string
	renamed *strings.Replacer // of addresses
	exports []string          // lines, which hold for the later ones
	env     []string          // after the test's own
}

// newShell is one in a directory of its own with the artefacts of CONVERGE_RELEASE.
func newShell(t *testing.T, temporal string) *shell {
	t.Helper()
	release := os.Getenv("CONVERGE_RELEASE")
	if release == "" {
		t.Skip("it needs the artefacts of a release: make packages-test")
	}
	dir := t.TempDir()
	entries, err := os.ReadDir(release)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.Symlink(filepath.Join(release, e.Name()), filepath.Join(dir, e.Name())))
	}
	return &shell{t: t, dir: dir, renamed: strings.NewReplacer("_amd64", "_"+runtime.GOARCH, "temporal.shop.dev:7233", temporal)}
}

func (s *shell) command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-ec", strings.Join(append(slices.Clone(s.exports), s.renamed.Replace(line)), "\n")) //nolint:gosec,noctx // of the page; it ends
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	return cmd
}

// run runs a line, which may not fail.
func (s *shell) run(line string) {
	s.t.Helper()
	if strings.HasPrefix(line, "export ") {
		s.exports = append(s.exports, s.renamed.Replace(line))
		return
	}
	out, err := s.command(line).CombinedOutput()
	require.NoError(s.t, err, "%s\n%s", line, out)
}

// shows runs the commands of the `console` block, each until it prints what the page shows.
func (s *shell) shows(block stage.Block) {
	s.t.Helper()
	for _, c := range block.Commands {
		temporaltest.WaitFor(s.t, stage.Patience, func() (bool, string) {
			out, err := s.command(c.Line).CombinedOutput()
			missing := c.Missing(string(out))
			return err == nil && missing == "", fmt.Sprintf("$ %s\n%s\nthe page has: %s", c.Line, out, missing)
		})
	}
}

// started starts a program, which the test ends at the latest.
func started(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	out := &stage.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd, out)
		}
	})
	return func() {
		t.Helper()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait(), out)
	}
}

// The archives run on a laptop.
func TestALaptopFromTheArchives(t *testing.T) {
	port := shared.FreePort(t)
	s := newShell(t, "")
	s.env = []string{fmt.Sprintf("TEMPORAL_ADDRESS=127.0.0.1:%d", port)}
	lines := stage.Commands(t, page, "A laptop")
	last := len(lines) - 1
	require.Equal(t, "converge dev hello", lines[last])
	for _, line := range lines[:last] {
		s.run(line)
	}
	stop := started(t, s.command(fmt.Sprintf("exec %s --port %d --ui-port %d --api-port 0", lines[last], port, shared.FreePort(t))))
	s.shows(stage.Only(t, page, "A laptop"))
	stop()
}

// A package, or the same files from the archive, makes a machine that runs a worker and the board as their user, and nothing of it is left
// after its removal that the page does not name.
func TestPackagesAreInstalledAndRemoved(t *testing.T) {
	if os.Getenv("CONVERGE_RELEASE") == "" {
		t.Skip("it needs the artefacts of a release: make packages-test")
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		t.Skip("NOT RUN: it installs a package, as root on Debian")
	}
	_, err := user.Lookup("converge")
	require.Error(t, err, "Converge is installed here already")
	lines, removal := stage.Commands(t, page, "Packages"), stage.Commands(t, page, "Uninstalling")
	own, state := cut(t, removal, "rm -r "+state)
	archive, run := cut(t, lines[1:], "systemctl enable --now converge-worker")
	for name, way := range map[string]struct{ install, upgrade, remove []string }{
		"deb":     {lines[:1], []string{"dpkg -i ./converge_*_linux_amd64.deb"}, []string{"apt-get remove -y converge", "apt-get purge -y converge"}},
		"archive": {archive, nil, own},
	} {
		t.Run(name, func(t *testing.T) {
			before := paths(t)
			server, err := embedded.Start(t.Context(), embedded.Options{}) // without search attributes, as your own is
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Stop()) })
			s := newShell(t, server.Address())
			systemctl := s.recordsSystemctl()
			t.Cleanup(func() {
				if t.Failed() {
					for _, line := range slices.Concat(way.remove, state[:2]) {
						_ = s.command(line).Run() // as far as it was installed
					}
				}
			})
			for _, line := range way.install {
				s.run(line)
			}
			t.Run("systemd-analyze verify", func(t *testing.T) { verifyUnits(t) })
			stop := s.runsUnits(run)
			requireAllWorkflows(t, server.Address(), strings.Join(removal, "\n"))
			for _, line := range way.upgrade {
				s.run(line)
			}
			require.NotContains(t, systemctl(), "disable", "an upgrade stops nothing")
			require.NotEmpty(t, assignments(t, settings)["CONVERGE_WORKER_FLAGS"], "an upgrade keeps what was edited")
			stop()
			for _, line := range way.remove {
				s.run(line)
			}
			require.Contains(t, systemctl(), "disable --now converge-worker.service converge-serve.service\n")
			left := created(t, before)
			require.NotEmpty(t, left, "the state")
			for _, path := range left {
				require.True(t, strings.HasPrefix(path, "/var/lib/converge"), "%s is left behind", path)
			}
			for _, line := range state[:2] {
				s.run(line)
			}
			require.Empty(t, created(t, before))
			_, err = user.Lookup("converge")
			require.Error(t, err)
		})
	}
}

// cut cuts lines before the one.
func cut(t *testing.T, lines []string, at string) (before, after []string) {
	t.Helper()
	n := slices.Index(lines, at)
	require.Positive(t, n, "%q in %q", at, lines)
	return lines[:n], lines[n:]
}

// recordsSystemctl puts a systemctl first that does nothing, where systemd does not run, and returns with what it was called.
func (s *shell) recordsSystemctl() (calls func() string) {
	s.t.Helper()
	const running = "/run/systemd/system"
	_, err := os.Stat(running)
	require.Error(s.t, err, "NOT RUN: systemd runs here, and this test plays its part")
	require.NoError(s.t, os.MkdirAll(running, 0o755)) //nolint:gosec // as systemd makes it
	s.t.Cleanup(func() { require.NoError(s.t, os.Remove(running)) })
	bin := s.t.TempDir()
	require.NoError(s.t, os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\necho \"$@\" >>"+bin+"/calls\n"), 0o755)) //nolint:gosec // a program
	path := bin + ":" + os.Getenv("PATH")
	apt := filepath.Join(bin, "apt.conf") // apt gives the scripts of packages a path of its own
	require.NoError(s.t, os.WriteFile(apt, []byte("DPkg::Path \""+path+"\";\n"), 0o600))
	s.env = append(s.env, "PATH="+path, "APT_CONFIG="+apt)
	return func() string {
		text, err := os.ReadFile(filepath.Join(bin, "calls"))
		require.NoError(s.t, err)
		return string(text)
	}
}

func verifyUnits(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("NOT RUN: no systemd-analyze (Debian package systemd)")
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", units+"/converge-worker.service", units+"/converge-serve.service").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
}

// runsUnits edits the environment of the units as the page says, and runs its commands, until it has shown what it shows.
func (s *shell) runsUnits(lines []string) (stop func()) {
	s.t.Helper()
	metrics, board := shared.FreePort(s.t), shared.FreePort(s.t)
	text, err := os.ReadFile(settings)
	require.NoError(s.t, err)
	edited := string(text)
	for name, value := range map[string]string{
		"TEMPORAL_ADDRESS": s.renamed.Replace("temporal.shop.dev:7233"), "CONVERGE_STORE": state + "/store",
		"CONVERGE_WORKER_FLAGS": fmt.Sprintf("--metrics %d", metrics), "CONVERGE_SERVE_FLAGS": fmt.Sprintf("--listen 127.0.0.1:%d", board),
	} {
		line := regexp.MustCompile("(?m)^" + name + "=.*$")
		require.Regexp(s.t, line, edited)
		edited = line.ReplaceAllLiteralString(edited, name+"="+value)
	}
	require.NoError(s.t, os.WriteFile(settings, []byte(edited), 0o600))

	stopWorker := startUnit(s.t, "converge-worker")
	answers(s.t, fmt.Sprintf("http://127.0.0.1:%d/readyz", metrics))
	stopBoard := startUnit(s.t, "converge-serve")
	answers(s.t, fmt.Sprintf("http://127.0.0.1:%d/readyz", board))
	for _, line := range lines[1:] {
		s.run(line)
	}
	s.shows(stage.Only(s.t, page, "Packages"))
	return func() {
		s.t.Helper()
		stopBoard()
		stopWorker()
	}
}

func answers(t *testing.T, url string) {
	t.Helper()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		answer, err := http.Get(url) //nolint:noctx // of a test
		if err != nil {
			return false, err.Error()
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK, answer.Status
	})
}

// startUnit runs the command of an installed unit as systemd does: as its user, with its environment, in its directory.
func startUnit(t *testing.T, name string) (stop func()) {
	t.Helper()
	unit := assignments(t, filepath.Join(units, name+".service"))
	who, err := user.Lookup(unit["User"])
	require.NoError(t, err)
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	require.NoError(t, err)
	require.Equal(t, unit["User"], unit["Group"])
	directory := filepath.Join("/var/lib", unit["StateDirectory"])
	mode, err := strconv.ParseUint(unit["StateDirectoryMode"], 8, 32)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(directory, fs.FileMode(mode)))
	require.NoError(t, os.Chown(directory, int(uid), int(gid)))

	environment := assignments(t, unit["EnvironmentFile"])
	var words []string
	for word := range strings.FieldsSeq(unit["ExecStart"]) {
		if variable, isVariable := strings.CutPrefix(word, "$"); isVariable {
			words = append(words, strings.Fields(environment[variable])...)
		} else {
			words = append(words, word)
		}
	}
	cmd := exec.Command(words[0], words[1:]...) //nolint:gosec,noctx // of the unit; it is stopped
	cmd.Dir = unit["WorkingDirectory"]
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + who.HomeDir, "USER=" + who.Username, "LOGNAME=" + who.Username}
	for variable, value := range environment {
		cmd.Env = append(cmd.Env, variable+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return started(t, cmd)
}

// assignments are the lines NAME=VALUE of a file.
func assignments(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(line, "#") {
			all[name] = value
		}
	}
	return all
}

// requireAllWorkflows lists by the query of the page what runs of Converge in a namespace which has nothing else.
func requireAllWorkflows(t *testing.T, address, removal string) {
	t.Helper()
	query := regexp.MustCompile(`terminate --query "([^"]+)"`).FindStringSubmatch(removal)
	require.NotNil(t, query)
	c, err := client.Dial(client.Options{HostPort: address, Logger: stage.Quiet{}})
	require.NoError(t, err)
	defer c.Close()
	list := func(query string) (ids []string) {
		listed, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
		require.NoError(t, err)
		for _, e := range listed.GetExecutions() {
			ids = append(ids, e.GetExecution().GetWorkflowId())
		}
		slices.Sort(ids)
		return ids
	}
	require.Contains(t, list(query[1]), "service/hello/hello")
	require.Equal(t, list("ExecutionStatus='Running'"), list(query[1]))
}

// paths are those where packages install, and keep state.
func paths(t *testing.T) map[string]bool {
	t.Helper()
	others := regexp.MustCompile(`^(/var/lib/(dpkg|apt|systemd)(/|$)|/etc/.*-$|/etc/\.pwd\.lock$)`) // of the system's own tools
	all := map[string]bool{}
	for _, root := range []string{"/etc", "/opt", "/srv", "/usr", "/var/lib"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil // it is gone meanwhile
			case err != nil:
				return err
			case others.MatchString(path) && entry.IsDir():
				return fs.SkipDir
			case !others.MatchString(path):
				all[path] = true
			}
			return nil
		}))
	}
	return all
}

// created are the paths that there were not before.
func created(t *testing.T, before map[string]bool) (all []string) {
	t.Helper()
	for path := range paths(t) {
		if !before[path] {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}
