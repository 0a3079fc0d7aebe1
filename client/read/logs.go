package read

import (
	"cmp"
	"context"
	"slices"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// Log is the output of one command in one channel.
type Log struct {
	Channel string `json:"channel"`
	store.LogEntry
}

// Logs returns the entries of a service whose keys are not known, oldest first, and adds their keys; of one channel, or of all. With an error
// it returns those of the channels before.
func Logs(ctx context.Context, at *store.Store, s protocol.Status, channel string, known map[string]bool) (all []Log, err error) {
	for _, c := range s.Channels {
		if channel != "" && c.Name != channel {
			continue
		}
		entries, err := at.NewLogs(ctx, s.Application, cmp.Or(s.Key, s.Service), cmp.Or(c.Key, c.Name), known) // under the names that runtimes know
		if err != nil {
			return all, err
		}
		for _, e := range entries {
			all = append(all, Log{c.Name, e})
		}
	}
	slices.SortStableFunc(all, func(a, b Log) int { return a.At.Compare(b.At) })
	return all, nil
}

// OfPreviousVersions are the entries of the version that each channel had before its last one.
func OfPreviousVersions(entries []Log) []Log {
	last, previous := map[string]string{}, map[string]string{}
	for _, e := range entries { // oldest first
		if e.FullVersion != "" && e.FullVersion != last[e.Channel] {
			previous[e.Channel], last[e.Channel] = last[e.Channel], e.FullVersion
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e Log) bool {
		return e.FullVersion == "" || e.FullVersion != previous[e.Channel]
	})
}
