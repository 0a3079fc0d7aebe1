package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// input is the input of a plan's command.
type input struct {
	Service  string `json:"service"`
	Services []struct {
		Service string   `json:"service"`
		Names   []string `json:"names"`
		Targets []struct {
			Address string `json:"address"`
		} `json:"targets"`
	} `json:"services"`
	Fragments []struct {
		Service string `json:"service"`
		Content string `json:"content"`
	} `json:"fragments"`
}

func read() (in input, err error) {
	b, err := os.ReadFile(os.Getenv("PVN_PLAN_FILE"))
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	if err != nil {
		return in, fmt.Errorf("read what the plan says: %w", err)
	}
	return in, nil
}

// register registers a service with those that WITH names, with the captured key of the service.
func register() error {
	in, err := read()
	if err != nil {
		return err
	}
	key := os.Getenv("API_KEY")
	for _, with := range strings.Fields(os.Getenv("WITH")) {
		if _, err := ask(with, http.MethodPost, "/apps/"+in.Service, key); err != nil {
			return err
		}
		fmt.Printf("%s is registered with %s\n", in.Service, with)
	}
	return nil
}

// capture prints the key that a service created at its first boot. Converge encrypts the key and shows it to no user.
func capture() error {
	key, err := os.ReadFile(file(os.Getenv("PVN_SERVICE"), ".key"))
	if err == nil {
		fmt.Printf("apiKey=%s\n", key)
	}
	return err
}

// push sends the collected configuration to an aggregator, and makes the aggregator read it.
func push() error {
	in, err := place()
	if err == nil {
		_, err = ask(in.Service, http.MethodPost, "/-/reload", "")
	}
	return err
}

// redeploy restarts an aggregator that reads the collected configuration only at its start.
func redeploy() error {
	in, err := place()
	if err != nil {
		return err
	}
	now, err := healthOf(in.Service)
	if err != nil {
		return err
	}
	if err := end(in.Service); err != nil {
		return err
	}
	return start(now.wish)
}

// place writes the collected configuration where the aggregator reads it, and removes entries that are no longer collected.
func place() (in input, err error) {
	in, err = read()
	if err != nil {
		return in, err
	}
	to, wanted := file(in.Service, ".d"), map[string]bool{}
	for _, f := range in.Fragments {
		wanted[f.Service] = true
		if err := write(filepath.Join(to, filepath.Base(f.Service)), []byte(f.Content)); err != nil {
			return in, err
		}
	}
	there, err := filepath.Glob(filepath.Join(to, "*"))
	if err != nil {
		return in, err
	}
	for _, path := range there {
		if !wanted[filepath.Base(path)] {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return in, err
}

// search checks whether an indexer answers, which it does after the first registration.
func search() error {
	in, err := read()
	if err != nil {
		return err
	}
	found, err := ask(in.Service, http.MethodGet, "/search", "")
	if err == nil {
		fmt.Println(found)
	}
	return err
}
