//go:build unix

package main

import (
	"os"
	"time"

	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

// stream keeps the end of what a command writes into a pipe. The pipe is read to its end whatever it
// holds, so that no command blocks on its own output.
type stream struct {
	read, write *os.File
	limit       int
	full        func() // called once, when there is more than the limit
	done        chan struct{}

	kept  []byte // owned by the reading goroutine until done
	total int64
}

func collect(limit int, full func()) (*stream, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stream{read: read, write: write, limit: limit, full: full, done: make(chan struct{})}
	go s.keep()
	return s, nil
}

func (s *stream) keep() {
	defer close(s.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := s.read.Read(buf)
		within := s.total <= int64(s.limit)
		s.total += int64(n)
		s.kept = append(s.kept, buf[:n]...)
		if len(s.kept) > 2*s.limit+len(buf) { // not at every read: the copy would cost more than the output
			s.cut()
		}
		if within && s.total > int64(s.limit) && s.full != nil {
			s.full()
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) cut() {
	if over := len(s.kept) - s.limit; over > 0 {
		s.kept = append(s.kept[:0], s.kept[over:]...)
	}
}

// closeWriter gives up our own hold of the pipe, once the command has its own or could not start.
func (s *stream) closeWriter() { _ = s.write.Close() }

// end waits until nobody writes any more, at most until over, and returns what was kept.
func (s *stream) end(over time.Time) report.Stream {
	wait := time.NewTimer(time.Until(over))
	defer wait.Stop()
	select {
	case <-s.done:
	case <-wait.C:
	}
	_ = s.read.Close() // ends a read that still waits
	<-s.done
	s.cut()
	return report.Stream{Data: s.kept, Bytes: s.total}
}
