package cluster

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// postgres is a PostgreSQL of Debian, in a directory of the test.
type postgres struct {
	t       *testing.T
	bin     string
	dir     string
	port    int
	account *syscall.Credential // PostgreSQL refuses to run as root
	process *exec.Cmd
}

func newPostgres(t *testing.T) *postgres {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("no PostgreSQL in /usr/lib/postgresql; install it with: make postgresql")
	}
	slices.Sort(found)
	p := &postgres{t: t, bin: filepath.Dir(found[len(found)-1])}
	p.dir, err = os.MkdirTemp("", "converge-postgres-") // below the directory of a test nobody else may look
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(p.dir) })
	if os.Getuid() == 0 {
		const nobody = 65534
		p.account = &syscall.Credential{Uid: nobody, Gid: nobody}
		require.NoError(t, os.Chown(p.dir, nobody, nobody))
	}
	p.port = shared.FreePort(t)
	out, err := p.command("initdb", "-D", p.data(), "-U", user, "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8").CombinedOutput()
	require.NoError(t, err, string(out))
	p.start()
	t.Cleanup(func() { p.stop(syscall.SIGQUIT) })
	return p
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// start starts it, and waits until it accepts connections.
func (p *postgres) start() {
	p.t.Helper()
	p.process = p.command("postgres", "-D", p.data(), "-p", strconv.Itoa(p.port), "-c", "listen_addresses="+host, "-c", "unix_socket_directories="+p.dir, "-c", "max_connections=200")
	require.NoError(p.t, p.process.Start())
	temporaltest.WaitFor(p.t, stage.Patience, func() (bool, string) {
		out, err := p.command("pg_isready", "-h", host, "-p", strconv.Itoa(p.port), "-d", "postgres").CombinedOutput()
		return err == nil, string(out)
	})
}

// stop ends it: SIGINT is a fast shutdown, SIGQUIT an immediate one, after which it recovers from its log.
func (p *postgres) stop(how syscall.Signal) {
	_ = p.process.Process.Signal(how) // it may have ended
	_ = p.process.Wait()              // reports the signal
}

// server is a Temporal server as a process of its own, on that PostgreSQL.
type server struct {
	t        *testing.T
	port     int
	postgres int // port
	process  *exec.Cmd
}

func newServer(t *testing.T, postgres int) *server {
	t.Helper()
	s := &server{t: t, port: shared.FreePort(t), postgres: postgres}
	out, err := s.role(schemaRole).CombinedOutput()
	require.NoError(t, err, string(out))
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) address() string { return fmt.Sprintf("%s:%d", host, s.port) }

func (s *server) role(name string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], name, strconv.Itoa(s.port), strconv.Itoa(s.postgres))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *server) start() {
	s.t.Helper()
	s.process = s.role(serverRole)
	s.process.Stderr = os.Stderr
	_, err := s.process.StdinPipe()
	require.NoError(s.t, err)
	out, err := s.process.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.process.Start())
	started := time.Now()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s.t, err)
	require.Equal(s.t, "serves\n", line)
	s.t.Logf("the server started in %s", time.Since(started).Round(100*time.Millisecond))
}

func (s *server) kill() {
	_ = s.process.Process.Kill() // it may have ended
	_ = s.process.Wait()         // reports the kill
}
