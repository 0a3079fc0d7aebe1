package embedded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

const loopback = "127.0.0.1"

// port is a port number on the loopback address; 0 means none.
type port struct{ number int }

func (p port) address() string { return net.JoinHostPort(loopback, strconv.Itoa(p.number)) }

// ports are all ports of one server. Only frontend and ui are for clients; the others are internal.
type ports struct {
	frontend, history, matching, worker, ui port
}

// choosePorts checks the requested ports and picks the others. Each port is held until all are known, so that they differ, and then
// released, since neither server accepts a listener. Another process could take one in the moment before it is bound again; the start then
// fails.
func choosePorts(grpcPort, uiPort int) (ports, error) {
	var held reservations
	defer held.release()

	var p ports
	var err error
	if p.frontend, err = held.reserve("the Temporal server", grpcPort); err != nil {
		return ports{}, err
	}
	if uiPort != 0 {
		if p.ui, err = held.reserve("the Web UI", max(uiPort, 0)); err != nil {
			return ports{}, err
		}
	}
	for _, internal := range []*port{&p.history, &p.matching, &p.worker} {
		if *internal, err = held.reserve("a service of the Temporal server", 0); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

type reservations []net.Listener

// reserve takes number, or a free port for 0. The purpose is for the error.
func (r *reservations) reserve(purpose string, number int) (port, error) {
	wanted := port{number}
	listener, err := net.Listen("tcp", wanted.address())
	if errors.Is(err, syscall.EADDRINUSE) && number != 0 {
		return port{}, fmt.Errorf("port %d is taken, %s cannot listen on %s; another converge dev may be running: stop it, or choose other ports with --port and --ui-port",
			number, purpose, wanted.address())
	}
	if err != nil {
		return port{}, fmt.Errorf("%s cannot listen on %s: %w", purpose, wanted.address(), err)
	}
	*r = append(*r, listener)
	return port{listener.Addr().(*net.TCPAddr).Port}, nil
}

func (r *reservations) release() {
	for _, listener := range *r {
		closeWithoutReuse(listener)
	}
}

// closeWithoutReuse closes a listener such that the kernel does not assign its port to a request for any free port: a connection that the
// listening side closed first stays in TIME_WAIT. A request for that specific port still works, as Go sets SO_REUSEADDR. If this fails, the
// port is only a little easier to lose.
func closeWithoutReuse(listener net.Listener) {
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return
	}
	defer client.Close()
	if accepted, err := listener.Accept(); err == nil {
		_ = accepted.Close()
		_ = client.SetReadDeadline(time.Now().Add(time.Second)) // in case it is the connection of another process
		_, _ = client.Read(make([]byte, 1))                     // until the close has arrived, so that the client is second
	}
}
