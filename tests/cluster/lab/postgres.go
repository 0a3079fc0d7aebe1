package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Installed returns the folder of the programs of the newest PostgreSQL.
func Installed() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err == nil && len(found) == 0 {
		err = errors.New("no PostgreSQL in /usr/lib/postgresql; install it with: make postgresql")
	}
	if err != nil {
		return "", err
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// Postgres is a PostgreSQL of Debian, in a directory of its own.
type Postgres struct {
	// Port is that on the loopback address.
	Port    int
	bin     string
	dir     string
	account *syscall.Credential // PostgreSQL refuses to run as root
	process *exec.Cmd
}

// StartPostgres makes a new PostgreSQL in a temporary directory, and starts it.
func StartPostgres() (p *Postgres, err error) {
	p = &Postgres{}
	if p.bin, err = Installed(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "converge-postgres-"); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		const nobody = 65534
		p.account = &syscall.Credential{Uid: nobody, Gid: nobody}
		err = os.Chown(p.dir, nobody, nobody)
	}
	if err == nil {
		p.Port, err = FreePort()
	}
	if err == nil {
		var out []byte
		if out, err = p.command("initdb", "-D", p.data(), "-U", user, "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8").CombinedOutput(); err != nil {
			err = fmt.Errorf("initdb: %w: %s", err, out)
		}
	}
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	return cmd
}

// startTimeout is how long it may take until it accepts connections, recovery included.
const startTimeout = 2 * time.Minute

// Start starts it again, and returns when it accepts connections.
func (p *Postgres) Start() error {
	p.process = p.command("postgres", "-D", p.data(), "-p", strconv.Itoa(p.Port), "-c", "listen_addresses="+Host, "-c", "unix_socket_directories="+p.dir, "-c", "max_connections=200")
	if err := p.process.Start(); err != nil {
		return err
	}
	for until := time.Now().Add(startTimeout); ; time.Sleep(50 * time.Millisecond) {
		out, err := p.command("pg_isready", "-h", Host, "-p", strconv.Itoa(p.Port), "-d", "postgres").CombinedOutput()
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("PostgreSQL is not ready after %s: %s", startTimeout, out)
		}
	}
}

// Stop ends it: SIGINT is a fast shutdown, SIGQUIT an immediate one, after which it recovers from its log.
func (p *Postgres) Stop(how syscall.Signal) {
	_ = p.process.Process.Signal(how) // it may have ended
	_ = p.process.Wait()              // reports the signal
}

// Remove ends it and removes its data.
func (p *Postgres) Remove() {
	p.Stop(syscall.SIGQUIT)
	_ = os.RemoveAll(p.dir) // temporary anyway
}
