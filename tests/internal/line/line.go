// Package line is what lies between a program and a server that it speaks to: a TCP proxy on loopback that can hold back
// all that goes either way, or be cut. It knows nothing of what it carries.
package line

import (
	"io"
	"net"
	"sync"
)

// Line carries connections to a target. It is safe for concurrent use.
type Line struct {
	listener net.Listener
	gate     sync.RWMutex // held for writing: nothing passes

	mu     sync.Mutex
	target string
	cut    bool
	ends   map[net.Conn]bool
}

// New begins to listen, for connections to a target such as "127.0.0.1:7233", which may be given later.
func New(target string) (*Line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{listener: listener, target: target, ends: map[net.Conn]bool{}}
	go l.serve()
	return l, nil
}

// Address is where it listens.
func (l *Line) Address() string { return l.listener.Addr().String() }

// Aim has connections that begin from now on go to another target.
func (l *Line) Aim(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Hold holds back everything until Pass. Nothing is lost, and no connection ends.
func (l *Line) Hold() { l.gate.Lock() }

// Pass ends Hold.
func (l *Line) Pass() { l.gate.Unlock() }

// Cut ends all connections, and each new one at once, until Mend.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for end := range l.ends {
		_ = end.Close()
	}
}

// Mend ends Cut.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

// Close ends everything.
func (l *Line) Close() {
	l.Cut()
	_ = l.listener.Close()
}

func (l *Line) serve() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.connect(from)
	}
}

// connect dials without the lock: a target that is frozen keeps it waiting.
func (l *Line) connect(from net.Conn) {
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		_ = from.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = from.Close()
		_ = to.Close()
		return
	}
	l.ends[from], l.ends[to] = true, true
	go l.carry(from, to)
	go l.carry(to, from)
}

// carry passes bytes one way, until either side closes.
func (l *Line) carry(from, to net.Conn) {
	_, _ = io.Copy(gated{to, &l.gate}, from)
	_ = from.Close()
	_ = to.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, from)
	delete(l.ends, to)
}

// gated is a connection whose writes wait while the gate is held.
type gated struct {
	io.Writer
	gate *sync.RWMutex
}

func (g gated) Write(data []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Writer.Write(data)
}
