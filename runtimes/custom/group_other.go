//go:build !unix

package custom

import (
	"os"
	"os/exec"
	"syscall"
)

// Without process groups only the command itself can be ended.

func self() (string, error) { return os.Executable() }

func ownGroup(*exec.Cmd) {}

func apart(*exec.Cmd) {}

func signalGroup(group int, _ syscall.Signal) {
	if p, err := os.FindProcess(group); err == nil {
		_ = p.Kill() // it may already be gone
	}
}

func groupAlive(int) bool { return false }

func signalOf(*os.ProcessState) string { return "" }
