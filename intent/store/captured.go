package store

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// This file stores the secrets that plans captured from services. They are encrypted for the recipients of the application. The store
// needs no key for them.

const captures = "captured/"

// Captured contains the secrets that the setup of a service in a release channel produced.
type Captured struct {
	Application string `json:"application"`
	Channel     string `json:"channel"`
	Service     string `json:"service"` // its name in that release channel
	Version     int64  `json:"version"` // counts from 1
	// Names are the names of the secrets. File is a SOPS-encrypted Secret that contains them.
	Names []string `json:"names"`
	File  string   `json:"file"`
}

func (c Captured) matches(application, channel, service string, version int64) bool {
	return c.Application == application && c.Channel == channel && c.Service == service && c.Version == version
}

// CreateCaptured stores captured secrets, unless that version already exists. It returns the stored version.
func (s *Store) CreateCaptured(ctx context.Context, c Captured) (Captured, error) {
	key := versioned(capturedKey(c.Application, c.Channel, c.Service), c.Version)
	stored, _, err := createRecord(ctx, s, key, c, func(r Captured) bool { return r.matches(c.Application, c.Channel, c.Service, c.Version) })
	return stored, err
}

// Captured returns the newest captured secrets of a service. A damaged record is an error, and counts as a version.
func (s *Store) Captured(ctx context.Context, application, channel, service string) (c Captured, err error) {
	prefix := capturedKey(application, channel, service)
	if c.Version, err = s.newest(ctx, prefix); err != nil {
		return c, err
	}
	found, err := readRecord(ctx, s, versioned(prefix, c.Version), func(r Captured) bool { return r.matches(application, channel, service, c.Version) })
	found.Version = c.Version
	return found, err
}

// versioned returns the key of a version. Versions count from 1.
func versioned(prefix string, version int64) string { return prefix + fmt.Sprintf("%012d", version) }

// newest returns the highest version under a prefix. No version at all is an error.
func (s *Store) newest(ctx context.Context, prefix string) (highest int64, err error) {
	keys, err := s.blobs.list(ctx, prefix)
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		if n, err := strconv.ParseInt(strings.TrimPrefix(key, prefix), 10, 64); err == nil { // otherwise a crashed writer left it
			highest = max(highest, n)
		}
	}
	if highest == 0 {
		return 0, &NotFoundError{prefix}
	}
	return highest, nil
}

// CapturedServices lists the services of a release channel that have captured secrets.
func (s *Store) CapturedServices(ctx context.Context, application, channel string) (names []string, err error) {
	keys, err := s.blobs.list(ctx, captures+application+"/"+channel+"/")
	for _, key := range keys {
		names = append(names, path.Base(path.Dir(key)))
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func capturedKey(application, channel, service string) string {
	return captures + application + "/" + channel + "/" + service + "/"
}
