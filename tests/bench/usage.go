package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a process has used.
type usage struct {
	CPU    time.Duration `json:"cpu"`    // user and system, since it started
	Memory int64         `json:"memory"` // resident now, in bytes; 0 where the system does not tell
	// Actions are those of a server, by kind.
	Actions map[string]int64 `json:"actions,omitempty"`
}

// used is this process's own.
func used() usage {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return usage{}
	}
	return usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Memory: resident()}
}

func resident() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// spent is what the server and this process, which is the worker, have used.
type spent struct{ server, worker usage }

func (s spent) since(before spent) (server, worker time.Duration) {
	return s.server.CPU - before.server.CPU, s.worker.CPU - before.worker.CPU
}
