// Package record is what a chaos run leaves behind, and the judgement of it: what was applied, what was asked and
// answered, what went wrong on purpose, and what Converge says of itself. The checks read nothing else, so that they can be
// held to recorded violations. It imports no more than entities.
package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Channels of every service, in their order.
const (
	Staging    = "staging"
	Production = "production"
)

// LogFile is the log of the applies, in the directory of the site; each line is a Line.
const LogFile = "applies.jsonl"

// Events of a Line.
const (
	Start = "start"
	End   = "end"
)

// Line is written by an apply when it begins and when it ends. One that was killed writes no second line.
type Line struct {
	Event   string    `json:"event"`
	Service string    `json:"service"`
	Channel string    `json:"channel"`
	Version string    `json:"version"`
	Attempt int       `json:"attempt"` // of this version here, from 1
	PID     int       `json:"pid"`
	Worker  int       `json:"worker"`           // the process that started it
	Beside  int       `json:"beside,omitempty"` // the process of another apply of this instance that was alive; 1: unknown which
	OK      bool      `json:"ok,omitempty"`
	At      time.Time `json:"at"`
}

// Instance names where it was applied: "s1/staging".
func (l Line) Instance() string { return l.Service + "/" + l.Channel }

// Read reads the log. A line that was cut off by a kill is left out.
func Read(r io.Reader) ([]Line, error) {
	var out []Line
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) == nil {
			out = append(out, l)
		}
	}
	return out, lines.Err()
}

// Outcome is what an apply does.
type Outcome struct {
	Takes time.Duration
	Fails bool
}

// Flavours of versions: the last letter of "v7p". None: it works.
const (
	FailsInStaging    = "s"
	FailsInProduction = "p"
	FailsAtFirst      = "f" // and works from the second attempt on
	Long              = "l" // an apply to staging outlasts a heartbeat timeout
)

// OutcomeOf follows from version, channel and attempt alone.
func OutcomeOf(version, channel string, attempt int) Outcome {
	h := fnv.New32a()
	fmt.Fprint(h, version, channel)
	o := Outcome{Takes: time.Duration(20+h.Sum32()%300) * time.Millisecond}
	switch _, flavour := NumberOf(version); flavour {
	case FailsInStaging:
		o.Fails = channel == Staging
	case FailsInProduction:
		o.Fails = channel == Production
	case FailsAtFirst:
		o.Fails = attempt == 1
	case Long:
		if channel == Staging {
			o.Takes = 12 * time.Second
		}
	}
	return o
}

// NumberOf takes a full version such as "v7p-i3" apart: the place in the order of releases, 7 and 3, and the flavour.
func NumberOf(version string) (place [2]int, flavour string) {
	release, incarnation, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-i")
	digits := strings.TrimRight(release, FailsInStaging+FailsInProduction+FailsAtFirst+Long)
	place[0], _ = strconv.Atoi(digits) // none: 0, before all
	place[1], _ = strconv.Atoi(incarnation)
	return place, release[len(digits):]
}

// Before tells whether a full version is older than another.
func Before(version, other string) bool {
	a, _ := NumberOf(version)
	b, _ := NumberOf(other)
	return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
}

// Outcomes of an Act.
const (
	Answered   = "answered"
	Refused    = "refused"
	Unanswered = "unanswered" // given up
)

// Act is a verb that somebody asked for.
type Act struct {
	N       int       `json:"n"` // unique: it is by "cN", with the request id "cN"
	Verb    string    `json:"verb"`
	Service string    `json:"service,omitempty"` // empty: the application
	Channel string    `json:"channel,omitempty"`
	Version string    `json:"version,omitempty"`
	Signal  bool      `json:"signal,omitempty"`
	Outcome string    `json:"outcome"`
	Message string    `json:"message,omitempty"`
	Sent    time.Time `json:"sent"`
	Done    time.Time `json:"done"`
	Tries   int       `json:"tries"`
	// Incarnation that a publication was answered with.
	Incarnation int64 `json:"incarnation,omitempty"`
}

// By is who acted, in the payload and in history.
func (a Act) By() string { return fmt.Sprintf("c%d", a.N) }

// First is who publishes first, when there are no rules yet, and reads what is judged.
const First = "nobody"

// String is for people.
func (a Act) String() string {
	words := []string{a.By(), a.Verb}
	for _, w := range []string{a.Service, a.Channel, a.Version} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// Kinds of Fault.
const (
	Kill   = "kill"
	Freeze = "freeze"
	Stall  = "stall" // of the connections to the server or the store
	Cut    = "cut"
)

// Fault is something that went wrong on purpose, from Began to Ended.
type Fault struct {
	Kind   string    `json:"kind"`
	Target string    `json:"target"` // worker-1, worker-2, server, store
	PID    int       `json:"pid,omitempty"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
}

// String is for people.
func (f Fault) String() string {
	return fmt.Sprintf("%s of %s from %s for %s", f.Kind, f.Target, clock(f.Began), f.Ended.Sub(f.Began).Round(time.Millisecond))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Rest is what a channel is at once nothing moves any more.
type Rest struct {
	Channel string `json:"channel"`
	Status  string `json:"status"`
	Target  string `json:"target"`
	Current string `json:"current"` // as Converge has it
	Site    string `json:"site"`    // as the file of the site has it
}

// Gap is a time in which a service did not answer who asked it each second.
type Gap struct {
	Service string    `json:"service"`
	From    time.Time `json:"from"` // the last answer
	To      time.Time `json:"to"`   // the next one
	Gone    bool      `json:"gone,omitempty"`
}

// Attack is a message of a hostile client, which changes nothing.
type Attack struct {
	What     string    `json:"what"`
	At       time.Time `json:"at"`
	Sent     bool      `json:"sent"`               // it arrived
	Answered string    `json:"answered,omitempty"` // as if it had been right
	Refused  string    `json:"refused,omitempty"`  // why, if it was sent as an update
}

// Record is all that is judged.
type Record struct {
	Seed         uint64                           `json:"seed"`
	Releases     int                              `json:"releases"` // asked for
	Took         time.Duration                    `json:"took"`
	Applies      []Line                           `json:"applies"`
	Acts         []Act                            `json:"acts"`
	Faults       []Fault                          `json:"faults"`
	History      map[string][]entities.AuditEntry `json:"history"`      // by service, as `converge history` prints it
	Incarnations map[int64]string                 `json:"incarnations"` // by number: who published it
	Rest         map[string][]Rest                `json:"rest"`         // by service, after all that was asked; none: it did not come to rest
	RestAt       map[string]int64                 `json:"restAt"`       // by service: the last line of history when that was so
	Unrested     []string                         `json:"unrested"`     // services that did not come to rest
	// Final is what each service is at after a last release, Last, that everybody let through.
	Final map[string][]Rest `json:"final"`
	Last  map[string]string `json:"last"`
	Gaps  []Gap             `json:"gaps"`
	// Attacks are what a hostile client sent meanwhile.
	Attacks []Attack `json:"attacks,omitempty"`
	// Proven: the application has an identity, so that everybody who acts on it is proven.
	Proven bool `json:"proven,omitempty"`
	// Application is the history of the application itself, as `converge history` prints it.
	Application []entities.AuditEntry `json:"application,omitempty"`
	Notes       []string              `json:"notes,omitempty"` // on the run, for people
}
