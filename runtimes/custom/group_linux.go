package custom

import (
	"os/exec"
	"syscall"
)

// self is the running program, even if its file has changed since its start.
func self() (string, error) { return "/proc/self/exe", nil }

// ownGroup gives the command a process group, so that a timeout reaches its children, and a Ctrl-C in the worker's terminal does
// not. On Linux the kernel also ends it when the worker dies, even by SIGKILL. Otherwise the apply of a dead worker could run at the
// same time as its repetition by the next worker, and two applies of one instance must never overlap. The signal reaches the command
// itself, but not its children: a script whose last program must end with it uses exec.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
