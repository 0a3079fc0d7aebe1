package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	exitWait     = 2  // of a protection: wait
	probes       = 20 // requests of one probe
	probePatient = 2 * time.Second
)

// probe requests the page of a channel's server twenty times. It passes if the percentage of failures is within the limit. It is a
// protection for users without metrics.
func probe() error {
	w, err := wished()
	if err != nil {
		return err
	}
	most := 0
	if len(os.Args) > 2 {
		if most, err = strconv.Atoi(os.Args[2]); err != nil {
			return fmt.Errorf("%q is no number of failed requests in a hundred", os.Args[2])
		}
	}
	s, err := load(w.file(".json"))
	if err != nil {
		return err
	}
	if s.Port == "" {
		fmt.Printf("nothing is running in %s yet\n", w.Channel)
		return nil
	}
	failed, client := 0, http.Client{Timeout: probePatient}
	for range probes {
		response, err := client.Get(s.url())
		if err != nil {
			return fmt.Errorf("ask %s: %w", s.url(), err)
		}
		_ = response.Body.Close()
		if response.StatusCode >= http.StatusInternalServerError {
			failed++
		}
	}
	share := failed * 100 / probes
	fmt.Printf("%d%% of requests to %s failed, at most %d%% may\n", share, s.Version, most)
	if share > most {
		return waits{}
	}
	return nil
}

// remove ends the server of the requested channel, and deletes its state.
func remove() error {
	w, err := wished()
	if err != nil {
		return err
	}
	s, err := load(w.file(".json"))
	if err != nil {
		return err
	}
	if s.alive() {
		if err := s.end(); err != nil {
			return err
		}
	}
	if err := os.Remove(w.file(".json")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
