//go:build unix && !linux

package main

// adoptOrphans works only on Linux.
func adoptOrphans() {}
