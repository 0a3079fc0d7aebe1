package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// folder is a runtime that all workers share: a file for each instance, with the version that runs. What is applied is
// also a line in a log that is only ever appended to. A version that is named slow takes its time.
type folder struct{ dir string }

// slowApply is how long a slow version takes.
const slowApply = 8 * time.Second

// Observe implements runtimes.Runtime.
func (f folder) Observe(_ context.Context, in runtimes.Request) ([]entities.Object, error) {
	version, err := os.ReadFile(f.file(in))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &entities.ReadingError{Code: runtimes.CodeFetchFailed, Message: err.Error()}
	}
	return []entities.Object{{
		Name: in.Service, Type: "file", Status: entities.ObjectSucceeded,
		Versions: []entities.ObjectVersion{{Version: string(version), Active: true}},
	}}, nil
}

// Apply implements runtimes.Runtime.
func (f folder) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	if strings.Contains(in.FullVersion, "slow") {
		select {
		case <-ctx.Done():
			return runtimes.Output{}, ctx.Err()
		case <-time.After(slowApply):
		}
	}
	log, err := os.OpenFile(filepath.Join(f.dir, "applies"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return runtimes.Output{}, err
	}
	_, err = fmt.Fprintf(log, "%s %s\n", in.Owner.Key(), in.FullVersion)
	return runtimes.Output{Command: "write " + in.FullVersion}, errors.Join(err, log.Close(), os.WriteFile(f.file(in), []byte(in.FullVersion), 0o600))
}

func (f folder) file(in runtimes.Request) string {
	return filepath.Join(f.dir, strings.ReplaceAll(in.Owner.Key(), "/", "_"))
}
