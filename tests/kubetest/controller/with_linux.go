package controller

import "syscall"

// withUs has a process killed when this one is.
func withUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
