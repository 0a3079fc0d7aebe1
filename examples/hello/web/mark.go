package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// processMark identifies a running process by its start time, because the system reuses process ids. It is empty if there is no
// process, or only a zombie.
func processMark(pid int) string {
	if runtime.GOOS == "linux" {
		return markFromProc(pid)
	}
	out, err := exec.Command("ps", "-o", "state=,lstart=", "-p", strconv.Itoa(pid)).Output()
	state, started, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || strings.HasPrefix(state, "Z") {
		return ""
	}
	return strings.TrimSpace(started)
}

// markFromProc returns the boot and the clock tick of the start, without starting a program for it.
func markFromProc(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name in parentheses may contain anything, including spaces and parentheses.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	threads, _ := strconv.Atoi(fields[17])
	if strings.Contains("ZX", fields[0]) && threads <= 1 { // with more threads, the others still hold its port
		return ""
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // absent in some sandboxes; then the tick alone is used
	return strings.TrimSpace(string(boot)) + "/" + fields[19]
}
