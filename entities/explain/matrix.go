package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Matrix shows the releases in flight of services with the same channels (B6): a row per release, newest first, with its phase in each
// channel and, in the last column, what it waits for.
type Matrix struct {
	Header []string // RELEASE, the channels, WAITS FOR
	Rows   [][]string
}

// The phases of a release in progress in a channel.
const (
	pending    = "pending"
	inProgress = "in progress"
)

const (
	minFold     = 3 // rows or columns with the same content, from which on they are merged
	maxUnfolded = 6 // channels that always get their own columns
)

const behindPrefix = "behind " // prefix before the release that blocks another one

// matrixRow is a row under construction.
type matrixRow struct {
	service  string
	versions []string // newest first; several with the same content
	phases   []string // by channel
	release  protocol.ReleaseStatus
	waitsFor string
}

// matrices returns the services in flight. Services with the same channels share a matrix, in order.
func matrices(services []protocol.Status, name func(protocol.Status) string, now time.Time) []Matrix {
	var all []Matrix
	var keys []string
	rows := map[string][]matrixRow{}
	for _, s := range services {
		releases := inFlight(s, name(s), now)
		key := strings.Join(channelNames(s), " ")
		if len(releases) > 0 && rows[key] == nil {
			keys = append(keys, key)
		}
		rows[key] = append(rows[key], releases...)
	}
	for _, key := range keys {
		all = append(all, matrix(strings.Fields(key), rows[key]))
	}
	return all
}

// inFlight returns the releases of a service that are in progress, and the newest if it did not succeed. Adjacent waiting releases with the
// same progress share a line.
func inFlight(s protocol.Status, name string, now time.Time) []matrixRow {
	var rows []matrixRow
	for n, r := range s.Releases {
		row := matrixRow{service: name, versions: []string{r.Version}, release: r}
		for _, c := range s.Channels {
			row.phases = append(row.phases, phaseIn(c, r))
		}
		if anyUnfinished(row.phases) || n == 0 && slices.ContainsFunc(row.phases, needsOperator) {
			rows = append(rows, row)
		}
	}
	for n, row := range rows { // the ids distinguish releases of one version
		if slices.ContainsFunc(rows, func(other matrixRow) bool {
			return other.release.Version == row.release.Version && other.release.ID != row.release.ID
		}) {
			rows[n].versions = []string{row.release.Version + " @" + row.release.ID}
		}
	}
	return fold(rows, func(r protocol.ReleaseStatus) string { return releaseWaitsFor(s, r, now) })
}

// phaseIn is the phase of a release in a channel. Where it waits for a success that an earlier channel will not have, it is blocked.
func phaseIn(c protocol.ChannelStatus, r protocol.ReleaseStatus) string {
	phase := r.Phases[c.Name]
	if phase != pending {
		return phase
	}
	for _, k := range c.Conditions {
		if k.Kind != channelStable {
			continue
		}
		if slices.ContainsFunc(k.Channels, func(first string) bool { return needsOperator(r.Phases[first]) }) {
			return "blocked"
		}
	}
	return phase
}

func anyUnfinished(phases []string) bool {
	return slices.ContainsFunc(phases, func(p string) bool { return p == pending || p == inProgress })
}

// needsOperator reports whether a phase may need an operator.
func needsOperator(phase string) bool { return phase == "failed" || phase == "rolled back" }

// fold merges many adjacent lines with the same content. The next release in the queue, or else the oldest, says what blocks them.
func fold(rows []matrixRow, waits func(protocol.ReleaseStatus) string) []matrixRow {
	var out []matrixRow
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && slices.Equal(rows[n].phases, rows[0].phases) && !slices.Contains(rows[0].phases, inProgress) {
			n++
		}
		if n < minFold {
			rows[0].waitsFor = waits(rows[0].release)
			out, rows = append(out, rows[0]), rows[1:]
			continue
		}
		merged := rows[n-1]
		reason := waits(merged.release)
		for k := n - 1; k >= 0 && strings.HasPrefix(reason, behindPrefix); k-- {
			if nextReason := waits(rows[k].release); !strings.HasPrefix(nextReason, behindPrefix) {
				reason = nextReason
			}
		}
		merged.versions, merged.waitsFor = nil, fmt.Sprintf("%d wait%s", n, prefixed(": ", reason))
		for _, row := range rows[:n] {
			merged.versions = append(merged.versions, row.versions...)
		}
		out, rows = append(out, merged), rows[n:]
	}
	return out
}

// releaseWaitsFor says what a release waits for in its next channel.
func releaseWaitsFor(s protocol.Status, r protocol.ReleaseStatus, now time.Time) string {
	for _, c := range s.Channels {
		if r.Phases[c.Name] == inProgress {
			return "" // in progress; the channel shows the details
		}
		if r.Phases[c.Name] != pending {
			continue
		}
		if c.Status == string(entities.StatusPaused) {
			return c.Name + " is paused"
		}
		if next, ok := releaseIn(s, c); ok && next.ID != r.ID && anyUnfinished([]string{next.Phases[c.Name]}) {
			return behindPrefix + next.Version // the channel's conditions do not apply to this release yet
		}
		if all := unmet(c); len(all) > 0 {
			return oneLine(shortText(all[0], now), 60)
		}
		return ""
	}
	return ""
}

// matrix builds the table. Of many channels, adjacent ones with the same content for every release share a column.
func matrix(channels []string, rows []matrixRow) Matrix {
	m := Matrix{Header: []string{"RELEASE"}}
	starts := columns(channels, rows)
	for n, from := range starts {
		to := len(channels)
		if n+1 < len(starts) {
			to = starts[n+1]
		}
		m.Header = append(m.Header, firstAndLast(channels[from:to]))
	}
	m.Header = append(m.Header, "WAITS FOR")
	for _, row := range rows {
		slices.Reverse(row.versions)
		cells := []string{joined(" ", row.service, firstAndLast(row.versions))}
		for _, n := range starts {
			cells = append(cells, shownPhase(row.phases[n]))
		}
		m.Rows = append(m.Rows, append(cells, row.waitsFor))
	}
	return m
}

// columns returns the channels at which a column begins.
func columns(channels []string, rows []matrixRow) []int {
	same := func(a, b int) bool {
		return !slices.ContainsFunc(rows, func(row matrixRow) bool { return row.phases[a] != row.phases[b] })
	}
	var starts []int
	for n := 0; n < len(channels); {
		to := n + 1
		for len(channels) > maxUnfolded && to < len(channels) && same(n, to) {
			to++
		}
		if to-n < minFold {
			to = n + 1
		}
		starts, n = append(starts, n), to
	}
	return starts
}

// firstAndLast names the first and the last of a list of names.
func firstAndLast(names []string) string {
	if len(names) < minFold {
		return strings.Join(names, ", ")
	}
	return names[0] + " … " + names[len(names)-1]
}

func shownPhase(phase string) string {
	if phase == "" {
		return "-" // not released to this channel
	}
	return phase
}
