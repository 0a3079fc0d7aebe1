// Package proxy is a TCP proxy on loopback between a program and a server that it connects to. It can hold back everything in both
// directions, or cut the connections. It does not interpret what it carries.
package proxy

import (
	"io"
	"net"
	"sync"
)

// Proxy carries connections to a target. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	gate     sync.RWMutex // held for writing while everything is held back

	mu     sync.Mutex
	target string
	cut    bool
	ends   map[net.Conn]bool
}

// New starts to listen, for connections to a target such as "127.0.0.1:7233", which may be set later.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, ends: map[net.Conn]bool{}}
	go p.serve()
	return p, nil
}

// Address is the address that it listens on.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// SetTarget sets the target of new connections.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Hold holds back everything until Resume. Nothing is lost, and no connection ends.
func (p *Proxy) Hold() { p.gate.Lock() }

// Resume ends Hold.
func (p *Proxy) Resume() { p.gate.Unlock() }

// Cut ends all connections, and each new one at once, until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for end := range p.ends {
		_ = end.Close()
	}
}

// Restore ends Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Close ends all connections, and the proxy.
func (p *Proxy) Close() {
	p.Cut()
	_ = p.listener.Close()
}

func (p *Proxy) serve() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.connect(from)
	}
}

// connect dials without the lock: a target that is frozen keeps it waiting.
func (p *Proxy) connect(from net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		_ = from.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = from.Close()
		_ = to.Close()
		return
	}
	p.ends[from], p.ends[to] = true, true
	go p.carry(from, to)
	go p.carry(to, from)
}

// carry copies bytes one way, until either side closes.
func (p *Proxy) carry(from, to net.Conn) {
	_, _ = io.Copy(gated{to, &p.gate}, from)
	_ = from.Close()
	_ = to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, from)
	delete(p.ends, to)
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
