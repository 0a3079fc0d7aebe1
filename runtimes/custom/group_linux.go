package custom

import (
	"os/exec"
	"syscall"
)

// self is this very program, whatever its file has become since it was started.
func self() (string, error) { return "/proc/self/exe", nil }

// ownGroup gives the command a process group, so that a timeout reaches its children, and a Ctrl-C
// in the worker's terminal does not reach it. On Linux the kernel also ends it when the worker dies,
// even by SIGKILL: otherwise an apply of a dead worker would go on beside its own repetition by the
// next one, and two applies of one instance must never overlap. It reaches the command itself, not
// what the command started: a script that must not be survived by its last program uses exec.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
