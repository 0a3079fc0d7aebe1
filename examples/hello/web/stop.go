package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// stop ends the servers of one channel, or of all. Converge, while it runs, starts them again.
func stop() error {
	channel := ""
	if len(os.Args) > 2 {
		channel = os.Args[2]
	}
	files, err := filepath.Glob(filepath.Join(defaultFolder, "*.json"))
	if err != nil {
		return err
	}
	var failed []error
	for _, file := range files {
		s, err := load(file)
		if err == nil && s.alive() && (channel == "" || s.Channel == channel) {
			err = s.end()
			fmt.Printf("stopped %s %s in %s, process %d\n", s.Service, s.Version, s.Channel, s.PID)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
