//go:build !linux

package controller

import "syscall"

// withUs can tie no process to this one here.
func withUs() *syscall.SysProcAttr { return nil }
