//go:build unix && !linux

package custom

import (
	"os"
	"os/exec"
	"syscall"
)

func self() (string, error) { return os.Executable() }

// ownGroup gives the command a process group, so that a timeout reaches its children, and a Ctrl-C in the worker's terminal does
// not. Outside Linux the command survives when the worker dies by SIGKILL.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
