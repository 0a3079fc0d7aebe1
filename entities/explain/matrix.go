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
	foldFrom = 3 // rows or columns with the same content, from which on they are merged
	wide     = 6 // channels that always get their own columns
)

const behind = "behind " // prefix before the release that blocks another one

// line is a row under construction.
type line struct {
	service  string
	versions []string // newest first; several with the same content
	phases   []string // by channel
	release  protocol.ReleaseStatus
	waits    string
}

// matrices returns the services in flight. Services with the same channels share a matrix, in order.
func matrices(services []protocol.Status, name func(protocol.Status) string, now time.Time) []Matrix {
	var all []Matrix
	var of []string
	rows := map[string][]line{}
	for _, s := range services {
		lines := inFlight(s, name(s), now)
		key := strings.Join(channelNames(s), " ")
		if len(lines) > 0 && rows[key] == nil {
			of = append(of, key)
		}
		rows[key] = append(rows[key], lines...)
	}
	for _, key := range of {
		all = append(all, matrix(strings.Fields(key), rows[key]))
	}
	return all
}

// inFlight returns the releases of a service that are in progress, and the newest if it did not succeed. Adjacent waiting releases with the
// same progress share a line.
func inFlight(s protocol.Status, name string, now time.Time) []line {
	var lines []line
	for n, r := range s.Releases {
		l := line{service: name, versions: []string{r.Version}, release: r}
		for _, c := range s.Channels {
			l.phases = append(l.phases, r.Phases[c.Name])
		}
		if underWay(l.phases) || n == 0 && slices.ContainsFunc(l.phases, stopped) {
			lines = append(lines, l)
		}
	}
	return fold(lines, func(r protocol.ReleaseStatus) string { return releaseWaits(s, r, now) })
}

func underWay(phases []string) bool {
	return slices.ContainsFunc(phases, func(p string) bool { return p == pending || p == inProgress })
}

// stopped reports whether a phase may need an operator.
func stopped(phase string) bool { return phase == "failed" || phase == "rolled back" }

// fold merges many adjacent lines with the same content. The next release in the queue, or else the oldest, says what blocks them.
func fold(lines []line, waits func(protocol.ReleaseStatus) string) []line {
	var out []line
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && slices.Equal(lines[n].phases, lines[0].phases) && !slices.Contains(lines[0].phases, inProgress) {
			n++
		}
		if n < foldFrom {
			lines[0].waits = waits(lines[0].release)
			out, lines = append(out, lines[0]), lines[1:]
			continue
		}
		one := lines[n-1]
		held := waits(one.release)
		for k := n - 1; k >= 0 && strings.HasPrefix(held, behind); k-- {
			if next := waits(lines[k].release); !strings.HasPrefix(next, behind) {
				held = next
			}
		}
		one.versions, one.waits = nil, fmt.Sprintf("%d wait%s", n, after(": ", held))
		for _, l := range lines[:n] {
			one.versions = append(one.versions, l.versions...)
		}
		out, lines = append(out, one), lines[n:]
	}
	return out
}

// releaseWaits says what a release waits for in its next channel.
func releaseWaits(s protocol.Status, r protocol.ReleaseStatus, now time.Time) string {
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
		if ahead, ok := releaseIn(s, c); ok && ahead.ID != r.ID && underWay([]string{ahead.Phases[c.Name]}) {
			return behind + ahead.Version // the channel's conditions do not apply to this release yet
		}
		if all := unmet(c); len(all) > 0 {
			return oneLine(inShort(all[0], now), 60)
		}
		return ""
	}
	return ""
}

// matrix builds the table. Of many channels, adjacent ones with the same content for every release share a column.
func matrix(channels []string, lines []line) Matrix {
	m := Matrix{Header: []string{"RELEASE"}}
	starts := columns(channels, lines)
	for n, from := range starts {
		to := len(channels)
		if n+1 < len(starts) {
			to = starts[n+1]
		}
		m.Header = append(m.Header, ends(channels[from:to]))
	}
	m.Header = append(m.Header, "WAITS FOR")
	for _, l := range lines {
		slices.Reverse(l.versions)
		row := []string{joined(" ", l.service, ends(l.versions))}
		for _, n := range starts {
			row = append(row, shownPhase(l.phases[n]))
		}
		m.Rows = append(m.Rows, append(row, l.waits))
	}
	return m
}

// columns returns the channels at which a column begins.
func columns(channels []string, lines []line) []int {
	same := func(a, b int) bool {
		return !slices.ContainsFunc(lines, func(l line) bool { return l.phases[a] != l.phases[b] })
	}
	var starts []int
	for n := 0; n < len(channels); {
		to := n + 1
		for len(channels) > wide && to < len(channels) && same(n, to) {
			to++
		}
		if to-n < foldFrom {
			to = n + 1
		}
		starts, n = append(starts, n), to
	}
	return starts
}

// ends names the first and the last of a list of names.
func ends(names []string) string {
	if len(names) < foldFrom {
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
