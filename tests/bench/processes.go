package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU time in /proc, the same on every Linux.
const clockTick = 10 * time.Millisecond

// process is another process as /proc tells of it.
type process struct {
	id, parent int
	usage
}

// readProcess reads /proc/<id>/stat (proc(5)).
func readProcess(id int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return process{}, err
	}
	// The second field is the program's name in parentheses, which may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 22 {
		return process{}, fmt.Errorf("/proc/%d/stat has %d fields after the name; expected 22 and more", id, len(fields))
	}
	var numbers [4]int64
	for i, field := range []int{1, 11, 12, 21} { // parent, user, system, pages resident
		if numbers[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
			return process{}, fmt.Errorf("/proc/%d/stat: %w", id, err)
		}
	}
	return process{id: id, parent: int(numbers[0]), usage: usage{
		CPU: time.Duration(numbers[1]+numbers[2]) * clockTick, Memory: numbers[3] * int64(os.Getpagesize()),
	}}, nil
}

// descendants are the processes below one, by id.
func descendants(of int) (map[int]process, error) {
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, dir := range found {
		id, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p, err := readProcess(id); err == nil { // else it has just ended
			all[id] = p
		}
	}
	below := map[int]process{}
	for id, p := range all {
		for at, ok := p, true; ok && at.id != 1; at, ok = all[at.parent] {
			if at.parent == of {
				below[id] = p
				break
			}
		}
	}
	return below, nil
}

// firstArgument is what a process was started as; empty when it is gone.
func firstArgument(id int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id))
	if err != nil {
		return ""
	}
	arguments := strings.Split(string(text), "\x00")
	if len(arguments) < 2 {
		return ""
	}
	return arguments[1]
}
