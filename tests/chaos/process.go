package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// Roles as the first argument make this program one of the processes of another one. Each prints its address, and ends
// when standard input does: then whoever started it is gone.
const (
	serverRole = "temporal-server"
	storeRole  = "store"
)

// play plays a role, if that is what this process was started for.
func play(args []string) (code int, played bool) {
	if len(args) != 3 {
		return 0, false
	}
	role := map[string]func(string) error{serverRole: playServer, storeRole: playStore}[args[1]]
	if role == nil {
		return 0, false
	}
	if err := role(args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// endsRunsAfter is so few events that runs of services end again and again.
const endsRunsAfter = 300

// playServer serves Temporal as `converge dev` does, on a file.
func playServer(file string) error {
	server, err := embedded.Start(context.Background(), embedded.Options{
		DBFile: file, SearchAttributes: worker.SearchAttributes(), ContinueAsNewAfter: endsRunsAfter,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	fmt.Println(server.Address())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return server.Stop()
}

// playStore serves a bucket that is kept in a directory.
func playStore(dir string) error {
	bucket, err := buckettest.Open(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, bucket) //nolint:gosec // on loopback, for a few minutes
}

// process is one that is started again whenever it ends, as by those who run such things.
type process struct {
	name string
	make func() *exec.Cmd
	// up is told the address that the process prints first; nil: it prints none.
	up  func(address string)
	log string // file

	mu      sync.Mutex
	changed *sync.Cond
	cmd     *exec.Cmd // nil: it does not run
	held    bool      // it is not to be started
	over    bool
	starts  int
	alone   int // how often it ended though nobody killed it
	killed  bool
}

func newProcess(name, dir string, make func() *exec.Cmd, up func(string)) *process {
	p := &process{name: name, make: make, up: up, log: filepath.Join(dir, name+".log")}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// betweenStarts is how soon whoever looks after a process starts it again.
const betweenStarts = 300 * time.Millisecond

// keep runs the process until it is over.
func (p *process) keep() {
	for {
		p.mu.Lock()
		for p.held && !p.over {
			p.changed.Wait()
		}
		over := p.over
		p.mu.Unlock()
		if over {
			return
		}
		if err := p.once(); err != nil && !errors.Is(err, errHeld) {
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.name, err)
		}
		<-time.After(betweenStarts)
	}
}

// once starts it and returns when it has ended.
func (p *process) once() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.make()
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe() // it ends when we do
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.start(cmd); err != nil {
		return err
	}
	p.listen(stdout, log)
	_ = cmd.Wait() // it is killed more often than not
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.killed && !p.over {
		p.alone++
	}
	p.cmd, p.killed = nil, false
	p.changed.Broadcast()
	return nil
}

var errHeld = errors.New("not to be started now")

// start starts it, unless it is held or over.
func (p *process) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.held {
		return errHeld
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	if p.up == nil {
		p.starts++
		p.changed.Broadcast()
	}
	return nil
}

// listen reads what it prints until it ends; the first line is the address.
func (p *process) listen(stdout io.Reader, log io.Writer) {
	lines := bufio.NewReader(stdout)
	if p.up != nil {
		address, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		p.up(address[:len(address)-1])
		p.mu.Lock()
		p.starts++
		p.changed.Broadcast()
		p.mu.Unlock()
	}
	_, _ = io.Copy(log, lines)
}

// pid of the process; 0: it does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// kill ends it as a crash does, and holds it. It returns which it was.
func (p *process) kill() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
	if p.cmd == nil {
		return 0
	}
	pid := p.cmd.Process.Pid
	p.killed = true
	_ = p.cmd.Process.Kill() // it may have just ended
	for p.cmd != nil {
		p.changed.Wait()
	}
	return pid
}

// revive lets it be started again, and returns once it is up.
func (p *process) revive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	p.changed.Broadcast()
	for before := p.starts; p.starts == before && !p.over; {
		p.changed.Wait()
	}
}

// freeze stops it where it is, and returns which it was.
func (p *process) freeze() int { return p.signal(syscall.SIGSTOP) }

// thaw ends freeze.
func (p *process) thaw() { p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	_ = p.cmd.Process.Signal(s) // it may have just ended
	return p.cmd.Process.Pid
}

// end kills it for good.
func (p *process) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.changed.Broadcast()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
	}
	for p.cmd != nil {
		p.changed.Wait()
	}
}

// awaitUp waits until it was started.
func (p *process) awaitUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.starts == 0 && !p.over {
		p.changed.Wait()
	}
}
