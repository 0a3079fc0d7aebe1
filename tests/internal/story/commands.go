package story

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// commands are all lines that are no verb.
var commands = map[string]func(*Player, line){
	"publish":   (*Player).publishes,
	"signal":    (*Player).signals,
	"wait":      (*Player).waits,
	"stays":     (*Player).stays,
	"phase":     (*Player).phase,
	"explain":   (*Player).explains,
	"history":   (*Player).history,
	"fake":      (*Player).fakes,
	"site":      (*Player).sets,
	"announced": (*Player).announced,
	"write":     (*Player).writes,
	"read":      (*Player).reads,
	"lines":     (*Player).counts,
	"runs":      (*Player).inRun,

	"incarnation": func(p *Player, l line) {
		p.until(l, func(s protocol.Status) bool { return fmt.Sprint(s.Incarnation) == l.rest })
	},
	"worker":    (*Player).worker,
	"terminate": (*Player).terminates,
}

func (p *Player) signals(l line) {
	p.T.Helper()
	verb, payload, _ := strings.Cut(l.rest, " ")
	require.NoError(p.T, p.Client.SignalWorkflow(p.T.Context(), l.id, "", verb, p.payload(payload)), p.at)
}

// until asks for the status of the line's service until it is as wanted.
func (p *Player) until(l line, wanted func(protocol.Status) bool) {
	p.T.Helper()
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		value, err := temporaltest.Query(p.T.Context(), p.Client, l.id, protocol.QueryStatus)
		if err != nil {
			return false, p.reason("%v", err)
		}
		var last protocol.Status
		if err := value.Get(&last); err != nil {
			return false, p.reason("%v", err)
		}
		return wanted(last), p.reason("have %s\n%s", stage.Channels(last), reasons(last))
	})
}

// reasons is why the channels and the releases of a status are as they are.
func reasons(s protocol.Status) string {
	var out []string
	for _, c := range s.Channels {
		for _, r := range c.Reasons {
			out = append(out, c.Name+": "+r.Text)
		}
		for _, j := range c.Conditions {
			out = append(out, c.Name+": "+j.Verdict+" "+j.ID+" "+j.Reason)
		}
	}
	for _, r := range s.Releases {
		out = append(out, fmt.Sprintf("%s: %v %v", r.Version, r.Phases, r.Reasons))
	}
	for _, r := range s.Refused {
		out = append(out, "refused "+r.Verb+": "+r.Reason)
	}
	return strings.Join(out, "\n")
}

// is reports whether the channels of a status are as a line says.
func is(s protocol.Status, want string) bool {
	for _, one := range strings.Split(want, ", ") {
		fields := strings.Fields(one)
		met := false
		for _, c := range s.Channels {
			met = met || len(fields) >= 2 && c.Name == fields[0] && c.Status == fields[1] && (len(fields) == 2 || c.Target == fields[2])
		}
		if !met {
			return false
		}
	}
	return true
}

func (p *Player) waits(l line) {
	p.T.Helper()
	p.until(l, func(s protocol.Status) bool { return is(s, l.rest) })
}

// stays waits for two more readings of what is there: nothing that was to be decided is undecided by then. Elsewhere than on
// the fake runtime it has them taken.
func (p *Player) stays(l line) {
	p.T.Helper()
	if p.Config != Config {
		for range 2 {
			_, err := p.call(line{id: l.id, command: protocol.Refresh}, []byte(`{"by":"story"}`))
			require.NoError(p.T, err, p.at)
		}
		s := p.Status(l.service)
		require.True(p.T, is(s, l.rest), "%s: have %s", p.at, stage.Channels(s))
		return
	}
	looks := map[string]int{}
	s := p.Status(l.service)
	for _, c := range s.Channels {
		looks[c.Name] = p.Fake.At(p.App, l.service, c.Name).Readings()
	}
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		s = p.Status(l.service)
		for _, c := range s.Channels {
			if p.Fake.At(p.App, l.service, c.Name).Readings() < looks[c.Name]+2 {
				return false, p.reason("%s is not looked at", c.Name)
			}
		}
		return true, ""
	})
	require.True(p.T, is(s, l.rest), "%s: have %s", p.at, stage.Channels(s))
}

// phase is of the newest release of that version.
func (p *Player) phase(l line) {
	p.T.Helper()
	want, reason, _ := strings.Cut(l.rest, " ~ ")
	fields := strings.SplitN(want, " ", 3)
	require.Len(p.T, fields, 3, p.at)
	p.until(l, func(s protocol.Status) bool {
		for _, r := range s.Releases {
			if r.Version == fields[0] {
				return r.Phases[fields[1]] == fields[2] && strings.Contains(r.Reasons[fields[1]], reason)
			}
		}
		return false
	})
}

func (p *Player) explains(l line) {
	p.T.Helper()
	want := strings.TrimPrefix(l.rest, "~ ")
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		value, err := temporaltest.Query(p.T.Context(), p.Client, l.id, protocol.QueryExplain)
		if err != nil {
			return false, p.reason("%v", err)
		}
		var e protocol.Explanation
		if err := value.Get(&e); err != nil {
			return false, p.reason("%v", err)
		}
		text := strings.Join(e.Lines, "\n")
		return strings.Contains(text, want), p.reason("have\n%s", text)
	})
}

// history has these lines of the trail, in this order, as: who kind [channel] [version]: text [(reason)]. Whole: these
// and no others.
func (p *Player) history(l line) {
	p.T.Helper()
	require.NotEmpty(p.T, l.below, p.at)
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		lines, err := p.trail(l.service)
		if err != nil {
			return false, p.reason("%v", err)
		}
		rest := l.below
		for i, have := range lines {
			if have.N != int64(i+1) {
				return false, p.reason("line %d is numbered %d", i+1, have.N)
			}
			if len(rest) > 0 && printed(have) == rest[0] {
				rest = rest[1:]
			}
		}
		var all []string
		for _, have := range lines {
			all = append(all, printed(have))
		}
		if l.rest == "whole" {
			return slices.Equal(all, l.below), p.reason("want\n%s\nhave\n%s", strings.Join(l.below, "\n"), strings.Join(all, "\n"))
		}
		return len(rest) == 0, p.reason("want %q in\n%s", rest, strings.Join(all, "\n"))
	})
}

func printed(a entities.AuditEntry) string {
	who := "converge"
	if a.Who != nil {
		who = a.Who.Name
		if a.Who.Proven {
			who += "!"
		}
	}
	text := strings.Join(strings.Fields(who+" "+a.Kind+" "+a.Channel+" "+a.Version), " ") + ": " + a.Text
	if a.Reason != "" {
		text += " (" + a.Reason + ")"
	}
	return text
}

// trail is what the store has, then what the workflow still keeps.
func (p *Player) trail(service string) ([]entities.AuditEntry, error) {
	store, err := store.Open(p.T.Context(), p.Store)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	lines, err := store.Audit(p.T.Context(), p.App, service)
	if err != nil {
		return nil, err
	}
	for _, line := range p.tail(service).Entries {
		if line.N > int64(len(lines)) {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

func (p *Player) writes(l line) {
	p.T.Helper()
	name, text, _ := strings.Cut(l.rest, " ")
	p.save(name, text+"\n")
}

func (p *Player) reads(l line) {
	p.T.Helper()
	name, want, _ := strings.Cut(l.rest, " ~ ")
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		have, err := os.ReadFile(filepath.Join(p.Dir, name))
		return err == nil && strings.Contains(string(have), strings.ReplaceAll(want, `\n`, "\n")), p.reason("have %q, %v", have, err)
	})
}

// counts holds a file to a number of lines.
func (p *Player) counts(l line) {
	p.T.Helper()
	name, want, _ := strings.Cut(l.rest, " ")
	have, err := os.ReadFile(filepath.Join(p.Dir, name))
	require.NoError(p.T, err, p.at)
	require.Equal(p.T, want, strconv.Itoa(strings.Count(string(have), "\n")), "%s: %s", p.at, have)
}

// inRun counts the runs of the line's workflow.
func (p *Player) inRun(l line) {
	p.T.Helper()
	want, err := strconv.Atoi(l.rest)
	require.NoError(p.T, err, p.at)
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		all, err := p.Client.CountWorkflow(p.T.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: embedded.Namespace, Query: fmt.Sprintf("WorkflowId = '%s'", l.id),
		})
		if err != nil {
			return false, p.reason("%v", err)
		}
		return all.Count >= int64(want), p.reason("%d", all.Count)
	})
}

func (p *Player) worker(l line) {
	p.T.Helper()
	require.NotNil(p.T, p.StartWorker, "%s: only in a world with a server of its own", p.at)
	if l.rest == "stop" {
		p.StopWorker()
		return
	}
	p.StartWorker()
}

func (p *Player) terminates(l line) {
	p.T.Helper()
	require.NoError(p.T, p.Client.TerminateWorkflow(p.T.Context(), l.id, "", "as an operator does"), p.at)
}

// sets says what the web server answers; 0: it hangs up.
func (p *Player) sets(l line) {
	p.T.Helper()
	fields := strings.SplitN(l.rest, " ", 3)
	require.GreaterOrEqual(p.T, len(fields), 2, p.at)
	status, err := strconv.Atoi(fields[1])
	require.NoError(p.T, err, p.at)
	body := ""
	if len(fields) == 3 {
		body = fields[2]
	}
	p.site.set(fields[0], status, body)
}

func (p *Player) announced(l line) {
	p.T.Helper()
	path, want, _ := strings.Cut(l.rest, " ~ ")
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		posted := p.site.posts(path)
		raw, err := json.Marshal(posted)
		if err != nil {
			return false, p.reason("%v", err)
		}
		for _, one := range posted {
			if strings.Contains(one, want) {
				return true, ""
			}
		}
		return false, p.reason("have %s", raw)
	})
}
