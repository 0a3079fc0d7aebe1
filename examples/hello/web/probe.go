package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	exitWait     = 2  // of a protection: not now
	probes       = 20 // requests of one probe
	probePatient = 2 * time.Second
)

// probe asks the page of a channel's server twenty times, and passes when no more than so many in a
// hundred requests fail: a protection for who has no metrics to query.
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

// remove ends the server of the channel that it is asked about, and forgets it.
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
