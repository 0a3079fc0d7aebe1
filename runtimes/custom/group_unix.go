//go:build unix

package custom

import (
	"os"
	"os/exec"
	"syscall"
)

// apart gives a process a group of its own, so that what stops or ends this one by its group does not reach it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to all processes of a group. A group that is gone is no error, and
// there is nobody to report any other to.
func signalGroup(group int, sig syscall.Signal) { _ = syscall.Kill(-group, sig) }

// groupAlive reports whether a process of the group is left, if only as a zombie.
func groupAlive(group int) bool { return syscall.Kill(-group, 0) == nil }

func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}
