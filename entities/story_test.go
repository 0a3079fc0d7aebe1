package entities

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the stories really tell")

// TestStories plays testdata/*.txtar. Each file of an archive is a story, named by the requirements
// it shows: lines that begin with "> " are told to a world, the lines below are all that it
// answers. `go test ./entities -update` writes the answers anew. The commands are in (*story).run.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			for i, f := range a.Files {
				t.Run(f.Name, func(t *testing.T) {
					told := retell(t, string(f.Data))
					if *update {
						a.Files[i].Data = []byte(told)
						return
					}
					require.Equal(t, string(f.Data), told)
				})
			}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
			}
		})
	}
}

func retell(t *testing.T, text string) string {
	s := &story{t: t, world: newWorld()}
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch line := strings.TrimRight(line, "\n"); {
		case strings.HasPrefix(line, "#") || line == "":
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "> "):
			b.WriteString(line + "\n" + s.run(strings.Fields(line[2:])))
		}
	}
	return b.String()
}

// story is a world that is told what happens in words.
type story struct {
	*world
	t    *testing.T
	told int64 // journal lines already printed
	// audited counts the audit lines already printed.
	audited int64
}

func (s *story) run(words []string) string {
	verb, arg := words[0], words[1:]
	at := func(i int) string {
		if i < len(arg) {
			return arg[i]
		}
		return ""
	}
	switch verb {
	// The configuration, in force once published.
	case "channel":
		s.declare(arg[0], arg[1:])
	case "remove":
		var kept []ChannelSpec
		for _, c := range s.next.Channels {
			if c.Name != arg[0] {
				kept = append(kept, c)
			}
		}
		s.next.Channels = kept
	case "service":
		s.service(arg)
	case "publish":
		s.publish()

	// What people do.
	case "release":
		_, err := s.release(at(0), at(1))
		return refusal("", err)
	case "pause":
		return refusal(s.s.PauseScope(at(0), bob, "incident 12", s.now))
	case "resume":
		return refusal(s.s.ResumeScope(at(0), bob, s.now))
	case "cancel":
		return refusal(s.s.CancelRelease(at(0), at(1), bob, "", s.now))
	case "retry":
		return refusal(s.s.RetryRelease(at(0), at(1), bob, s.now))
	case "refresh":
		return refusal(s.s.RefreshScope(at(0)))

	// What runtimes answer.
	case "apply-ended":
		text := strings.Join(arg[1:], " ")
		permanent := strings.HasPrefix(text, "for good: ")
		if text == "ok" {
			text = ""
		}
		s.applyEnded(arg[0], strings.TrimPrefix(text, "for good: "), permanent)
	case "apply-lost":
		s.s.ApplyLost(arg[0], s.applies[arg[0]].Target, "interrupted", s.now)
	case "look":
		r, fresh := reading(arg[1:])
		s.look(arg[0], r, fresh)
	case "answer":
		s.answer(arg[0], arg[1:])
	case "render":
		s.render()
	case "obey":
		s.obey()

	// Time, and what is to be seen.
	case "advance":
		d, err := time.ParseDuration(arg[0])
		require.NoError(s.t, err)
		s.now = s.now.Add(d)
	case "decide":
		return s.decide(Mode{Drain: at(0) == "drain"}).String()
	case "phases":
		return s.phases()
	case "targets":
		return s.targets() + "\n"
	case "journal":
		return s.journal()
	case "watches":
		return s.watches()
	case "carry-over": // as continue-as-new does
		s.carryOver()
	case "at":
		return s.now.Format("15:04:05") + "\n"
	default:
		text, ok := s.gate(verb, arg)
		if !ok {
			text, ok = s.back(verb, arg)
		}
		if !ok {
			s.t.Fatalf("no command %q", verb)
		}
		return text
	}
	return ""
}

func refusal(answer string, err error) string {
	if err != nil {
		return "refused: " + err.Error() + "\n"
	}
	if answer == "" {
		return ""
	}
	return answer + "\n"
}

// declare reads `channel production after=staging,canary runtime=code template=t2 …`.
func (s *story) declare(name string, settings []string) {
	s.channel(name, func(c *ChannelSpec) {
		for _, setting := range settings {
			key, value, _ := strings.Cut(setting, "=")
			switch key {
			case "after": // one condition, as of one selector
				c.Conditions = append(c.Conditions, stableAfter(strings.Split(value, ",")...))
			case "condition":
				c.Conditions = append(c.Conditions, Condition{ID: value + "/x", Kind: ConditionKind(value)})
			case "freely":
				c.Conditions = nil
			case "runtime":
				c.Runtime = value
			case "template":
				c.Template = value
			case "rollback": // automatic: most stories tell what happens without
				c.NoRollback = value != "auto"
			case "drift":
				c.Drift = Drift(value)
			case "deadline":
				d, err := time.ParseDuration(value)
				require.NoError(s.t, err)
				c.ProgressDeadline = d
			default:
				if !s.declareGate(c, key, value) {
					s.t.Fatalf("no setting %q of a channel", key)
				}
			}
		}
	})
}

func (s *story) service(settings []string) {
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		switch key {
		case "version":
			s.next.Version = value
		case "initialVersion":
			s.next.InitialVersion = value
		case "remove":
			s.next.Remove = value == "yes"
		case "configChanges":
			s.next.ConfigChanges = ConfigChanges(value)
		default:
			s.t.Fatalf("no setting %q of the service", key)
		}
	}
}

// reading reads `v2 SUCCEEDED`, `v1+v2 PENDING`, `v2 SUCCEEDED drifted`, `nothing`,
// `error unreachable connection refused`; with a leading `stale` it is from before the last apply.
func reading(words []string) (Reading, bool) {
	fresh := words[0] != "stale"
	if !fresh {
		words = words[1:]
	}
	switch words[0] {
	case "nothing":
		return Reading{}, fresh
	case "error":
		return Reading{Err: &ReadingError{Code: words[1], Message: strings.Join(words[2:], " ")}}, fresh
	}
	o := Object{Name: "web-1", Type: "process", Status: ObjectStatus(words[1])}
	drifted := len(words) > 2 && words[2] == "drifted"
	if !drifted && len(words) > 2 {
		o.Message = strings.Join(words[2:], " ")
	}
	for _, v := range strings.Split(words[0], "+") {
		if v == "?" {
			v = ""
		}
		v, off := strings.CutSuffix(v, "-off")
		o.Versions = append(o.Versions, ObjectVersion{Version: v, Active: !off, Drifted: drifted})
	}
	return Reading{Objects: []Object{o}}, fresh
}

// answer is what an exit-code runtime says about the version asked about.
func (s *story) answer(channel string, words []string) {
	op := s.asks[channel]
	delete(s.asks, channel)
	r := running(op.Target.FullVersion, ObjectSucceeded)
	switch words[0] {
	case "there":
	case "work":
		r = Reading{Objects: []Object{{Name: "web", Type: "custom", Status: ObjectPending, Message: "fetch reports work to do"}}}
	case "error":
		r = Reading{Err: &ReadingError{Code: "fetch-failed", Message: strings.Join(words[1:], " ")}}
	default:
		s.t.Fatalf("no answer %q", words[0])
	}
	r.At = s.now
	s.s.AskAnswered(channel, op.Target, r)
}

func (s *story) journal() string {
	var b strings.Builder
	for _, l := range s.s.Journal {
		if l.N > s.told {
			s.told = l.N
			fmt.Fprintln(&b, strings.Join(strings.Fields(l.At.Format("15:04:05")+" "+l.Channel+" "+l.Text), " "))
		}
	}
	return b.String()
}

func (s *story) watches() string {
	var b strings.Builder
	for _, w := range s.s.Watches() {
		fmt.Fprintf(&b, "%s:", w.Key())
		for _, l := range w.Looks {
			known := " (known)"
			if l.Known == "" {
				known = ""
			}
			fmt.Fprintf(&b, " %s %s%s", l.Channel, shownVersion(l.Target.FullVersion), known)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// carryOver gives the state to another run.
func (w *world) carryOver() {
	raw, err := json.Marshal(w.s)
	if err != nil {
		panic(err)
	}
	w.s = &State{}
	if err := json.Unmarshal(raw, w.s); err != nil {
		panic(err)
	}
}
