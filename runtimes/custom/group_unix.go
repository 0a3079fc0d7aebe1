//go:build unix

package custom

import (
	"os"
	"os/exec"
	"syscall"
)

// apart gives a process its own group, so that a signal to this process's group does not reach it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to all processes of a group. A missing group is no error, and other errors cannot be reported.
func signalGroup(group int, sig syscall.Signal) { _ = syscall.Kill(-group, sig) }

// groupAlive reports whether a process of the group is left, even as a zombie.
func groupAlive(group int) bool { return syscall.Kill(-group, 0) == nil }

func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}
