package loop_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/view"
)

var update = flag.Bool("update", false, "write the actual output of the stories")

// TestStories runs testdata/*.txtar. Each file of an archive is a story, named after the requirements that it shows: lines that begin
// with "> " are commands, and the lines below are the complete answer. `go test ./entities/loop -update` writes the answers. The commands
// are in (*story).run.
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
					played := runStory(t, string(f.Data))
					if *update {
						a.Files[i].Data = []byte(played)
						return
					}
					require.Equal(t, string(f.Data), played)
				})
			}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
			}
		})
	}
}

func runStory(t *testing.T, text string) string {
	s := &story{t: t, world: newWorld()}
	var b strings.Builder
	for text := range strings.Lines(text) {
		switch text := strings.TrimRight(text, "\n"); {
		case strings.HasPrefix(text, "#") || text == "":
			b.WriteString(text + "\n")
		case strings.HasPrefix(text, "> "):
			b.WriteString(text + "\n" + s.run(strings.Fields(text[2:])))
		}
	}
	return b.String()
}

// story is a world that is driven by commands.
type story struct {
	*world
	t           *testing.T
	journalSeen int64 // journal lines already printed
	auditSeen   int64 // audit lines already printed
}

// command carries out one line of a story, and returns its answer.
type command func(*story, []string) string

// run carries out one line.
func (s *story) run(words []string) string {
	for _, all := range []map[string]command{userCommands, resultCommands, outputCommands, gateCommands, backCommands, waitingCommands} {
		if do, ok := all[words[0]]; ok {
			return do(s, words[1:])
		}
	}
	s.t.Fatalf("no command %q", words[0])
	return ""
}

// wordAt is a word, or "" if there are fewer; "-" is none.
func wordAt(words []string, n int) string {
	if n < len(words) && words[n] != "-" {
		return words[n]
	}
	return ""
}

func wordsFrom(words []string, from int) string {
	return strings.Join(words[min(from, len(words)):], " ")
}

// parseID reads "production", or "production/eu-1" in a fleet.
func parseID(word string) entities.InstanceID {
	channel, name, fleet := strings.Cut(word, "/")
	if !fleet {
		return entities.Only(channel)
	}
	return entities.InstanceID{Channel: channel, Name: name}
}

// userCommands are commands for the configuration, which takes effect once published, and for actions of people.
var userCommands = map[string]command{
	"channel": func(s *story, arg []string) string { s.declare(arg[0], arg[1:]); return "" },
	"remove": func(s *story, arg []string) string {
		s.next.Channels = slices.DeleteFunc(slices.Clone(s.next.Channels), func(c entities.ChannelSpec) bool { return c.Name == arg[0] })
		return ""
	},
	"service": func(s *story, arg []string) string { s.service(arg); return "" },
	"publish": func(s *story, _ []string) string { s.publish(); return "" },
	"release": func(s *story, arg []string) string {
		_, err := s.release(wordAt(arg, 0), wordAt(arg, 1), wordAt(arg, 2)) // release VERSION [ID [STRATEGY]]
		return answerText("", err)
	},
	"release-aspect": func(s *story, arg []string) string { // release-aspect flags flagSet=dark [STRATEGY]
		return answerText("", s.releaseAspect(arg[0], arg[1], wordAt(arg, 2)))
	},
	"pause": func(s *story, arg []string) string {
		return answerText(perform(s.s.Pause(wordAt(arg, 0), bob, "incident 12", s.now)))
	},
	"resume": func(s *story, arg []string) string {
		return answerText(perform(s.s.Resume(wordAt(arg, 0), bob, s.now)))
	},
	"cancel": func(s *story, arg []string) string {
		return s.cancel(state.Cancellation{}, arg)
	},
	"terminate": func(s *story, arg []string) string { // cancel --terminate
		return s.cancel(state.Cancellation{Terminate: true}, arg)
	},
	"retry": func(s *story, arg []string) string {
		return answerText(perform(s.s.Retry(wordAt(arg, 0), wordAt(arg, 1), bob, s.now)))
	},
	"refresh": func(s *story, arg []string) string { return answerText(perform(s.s.Refresh(wordAt(arg, 0)))) },
}

// resultCommands are commands for results of activities, and for the time.
var resultCommands = map[string]command{
	"apply-ended": func(s *story, arg []string) string { // apply-ended INSTANCE ok, or the error
		text := wordsFrom(arg, 1)
		permanent := strings.HasPrefix(text, "for good: ")
		if text == "ok" {
			text = ""
		}
		s.applyEnded(parseID(arg[0]), strings.TrimPrefix(text, "for good: "), permanent)
		return ""
	},
	"apply-untaken": func(s *story, arg []string) string { // no worker took it
		id := parseID(arg[0])
		s.s.NoWorkerForApply(id, s.applies[id].Target, &entities.ReadingError{Code: entities.CodeNoWorker, Message: "no worker polls runtime/local"}, s.now)
		delete(s.applies, id)
		return ""
	},
	"apply-unready": func(s *story, arg []string) string { // apply-unready INSTANCE what is missing
		id := parseID(arg[0])
		s.s.ApplyUnready(id, s.applies[id].Target, wordsFrom(arg, 1), s.now)
		delete(s.applies, id)
		return ""
	},
	"apply-lost": func(s *story, arg []string) string {
		s.s.ApplyLost(parseID(arg[0]), s.applies[parseID(arg[0])].Target, "interrupted", s.now, 0)
		return ""
	},
	"observe": func(s *story, arg []string) string {
		r, fresh := reading(arg[1:])
		s.observe(parseID(arg[0]), r, fresh)
		return ""
	},
	"answer": func(s *story, arg []string) string { s.answerQuery(parseID(arg[0]), arg[1:]); return "" },
	"render": func(s *story, _ []string) string { s.render(); return "" },
	"unrendered": func(s *story, arg []string) string { // unrendered INSTANCE cause: everything else is rendered
		s.renderExcept(wordsFrom(arg, 1), parseID(arg[0]))
		return ""
	},
	"obey": func(s *story, _ []string) string { s.applyAll(); return "" },
	"obey-in": func(s *story, arg []string) string { // ends the applies of these instances with success
		for _, word := range arg {
			s.succeedApply(parseID(word))
		}
		return ""
	},
	"advance":    func(s *story, arg []string) string { s.now = s.now.Add(s.duration(arg[0])); return "" },
	"carry-over": func(s *story, _ []string) string { s.continueAsNew(); return "" },
}

// outputCommands are commands that print the state.
var outputCommands = map[string]command{
	"decide": func(s *story, arg []string) string {
		if wordAt(arg, 0) == "unread-rules" {
			return s.decide(decide.Mode{UnreadRules: true}).String()
		}
		return s.decide(decide.Mode{NoNewWork: wordAt(arg, 0) != "", Rollbacks: wordAt(arg, 0) == "drain-but-rollbacks"}).String()
	},
	"phases":  func(s *story, _ []string) string { return s.phases() },
	"targets": func(s *story, _ []string) string { return s.targets() + "\n" },
	"journal": func(s *story, _ []string) string { return s.journal() },
	"watches": func(s *story, _ []string) string { return s.watches() },
	"explain": func(s *story, arg []string) string { // explain CHANNEL, below the headline of the service
		status := view.Of(s.s, s.decision)
		return status.Headline + "\n" + strings.Join(explain.Lines(status, arg[0], s.now), "\n") + "\n"
	},
	"table": func(s *story, _ []string) string { // rows of the overview
		rows := ""
		for _, r := range explain.Table([]protocol.Status{view.Of(s.s, s.decision)}, s.now).Rows {
			rows += strings.Join(r[1:], " | ") + "\n"
		}
		return rows
	},
	"approvals": func(s *story, _ []string) string { // those that people are asked for: the search attribute, and the list
		text := cmp.Or(strings.Join(view.WaitingFor(s.decision), " "), "none") + "\n"
		for _, a := range explain.OpenApprovals([]protocol.Status{view.Of(s.s, s.decision)}) {
			text += strings.Join(a.Lines(s.now), "\n") + "\n"
		}
		return text
	},
	"at": func(s *story, _ []string) string { return s.now.Format("15:04:05") + "\n" },
}

func (s *story) cancel(c state.Cancellation, arg []string) string {
	c.Version, c.Channel, c.Who, c.Reason = wordAt(arg, 0), wordAt(arg, 1), bob, wordsFrom(arg, 2)
	return answerText(perform(s.s.Cancel(c, s.now)))
}

func answerText(answer string, err error) string {
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
	s.channel(name, func(c *entities.ChannelSpec) {
		for _, setting := range settings {
			key, value, _ := strings.Cut(setting, "=")
			if !s.declareChannel(c, key, value) && !s.declareInstances(c, key, value) && !s.declareGate(c, key, value) {
				s.t.Fatalf("no setting %q of a channel", key)
			}
		}
	})
}

func (s *story) declareChannel(c *entities.ChannelSpec, key, value string) bool {
	switch key {
	case "after": // one condition, as of one selector
		c.Conditions = append(c.Conditions, stableAfter(strings.Split(value, ",")...))
	case "stable": // staging:168h:healthy
		c.Conditions = append(c.Conditions, s.stable(strings.Split(value, ":")))
	case "condition":
		c.Conditions = append(c.Conditions, entities.Condition{ID: value + "/x", Kind: entities.ConditionKind(value)})
	case "freely":
		c.Conditions = nil
	case "rollback": // automatic: most stories have none
		c.NoRollback = value != "auto"
	case "enforcement":
		enforcement(c, value)
	case "drift":
		c.Drift = entities.Drift(value)
	case "rollout":
		c.Rollout = s.rollout(value)
		c.Checks = slices.DeleteFunc(slices.Clone(c.Checks), func(k entities.Check) bool { return k.Kind == entities.CheckSelection })
		if c.Rollout.ByCommand() {
			c.Checks = append(c.Checks, entities.Check{ID: entities.SelectionID, Kind: entities.CheckSelection, Definition: "select", Interval: 30 * time.Second})
		}
	case "onDelete":
		c.OnDelete = entities.OnDelete(value)
	case "deadline":
		c.ProgressDeadline = s.duration(value)
	default:
		return false
	}
	return true
}

// rollout reads `1,10m,25%,10m,100%,max=2` or `./select.sh,max=2`; empty is none.
func (s *story) rollout(value string) *entities.Rollout {
	if value == "" {
		return nil
	}
	r := &entities.Rollout{}
	for _, word := range strings.Split(value, ",") {
		amount, isMax := strings.CutPrefix(word, "max=")
		a, isAmount := amountOf(amount)
		switch {
		case isMax:
			r.MaxUnavailable = a
		case strings.HasPrefix(word, "./"):
			r.Command = []string{word}
		case isAmount:
			r.Steps = append(r.Steps, entities.RolloutStep{Instances: a})
		default:
			r.Steps = append(r.Steps, entities.RolloutStep{Pause: s.duration(word)})
		}
	}
	return r
}

// amountOf reads `3` or `25%`.
func amountOf(word string) (*entities.Amount, bool) {
	number, percent := strings.CutSuffix(word, "%")
	n, err := strconv.Atoi(number)
	if percent {
		return &entities.Amount{Percent: n}, err == nil
	}
	return &entities.Amount{Number: n}, err == nil
}

// stable reads `staging,qa:168h`, `staging::healthy` or both.
func (s *story) stable(parts []string) entities.Condition {
	c := stableAfter(strings.Split(parts[0], ",")...)
	c.Kind = entities.ChannelStableFor
	if long := wordAt(parts, 1); long != "" {
		c.For = s.duration(long)
	}
	if wordAt(parts, 2) == "healthy" {
		c.Kind = entities.ChannelHealthy
	}
	return c
}

// declareInstances reads `instances=eu-1,eu-2,us-1:other`, and `runtime=code template=t2` of all or, as
// `template/eu-1=t2`, of one.
func (s *story) declareInstances(c *entities.ChannelSpec, key, value string) bool {
	key, one, _ := strings.Cut(key, "/")
	c.Instances = slices.Clone(c.Instances)
	set := func(change func(*entities.InstanceSpec)) {
		for n := range c.Instances {
			if one == "" || c.Instances[n].Name == one {
				change(&c.Instances[n])
			}
		}
	}
	switch key {
	case "runtime":
		set(func(i *entities.InstanceSpec) { i.Runtime = value })
	case "movedFrom": // and ":remove"
		from, then, _ := strings.Cut(value, ":")
		set(func(i *entities.InstanceSpec) {
			i.MovedFrom = &entities.MovedFrom{Runtime: from, Remove: then == "remove"}
		})
	case "template": // of all, or after "NAME:" of one
		of, template, named := strings.Cut(value, ":")
		set(func(i *entities.InstanceSpec) {
			switch {
			case !named:
				i.Template = value
			case i.Name == of:
				i.Template = template
			}
		})
	case "instances":
		c.Instances = nil
		for _, word := range strings.Split(value, ",") {
			name, runtime, given := strings.Cut(word, ":")
			if !given {
				runtime = "local"
			}
			c.Instances = append(c.Instances, entities.InstanceSpec{Name: name, Runtime: runtime, Template: "t1"})
		}
	default:
		return false
	}
	return true
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
		case "strategy":
			s.next.Maestro.Strategy = value
		case "holdUntil":
			s.next.Maestro.HoldUntil = value
		case "gates": // of a manual rollback
			s.next.GatedRollback = value == "ask"
		case "noRollbackBelow":
			s.next.NoRollbackBelow = value
		case "aspects": // flags:flagSet,size:replicas
			s.next.Aspects, s.next.Parameters = nil, nil
			for _, one := range strings.Split(value, ",") {
				if name, parameter, ok := strings.Cut(one, ":"); ok {
					s.next.Aspects = append(s.next.Aspects, entities.Aspect{Name: name, Parameters: []string{parameter}})
					s.next.Parameters = append(s.next.Parameters, entities.ParamSpec{Name: parameter, Type: entities.ParamString})
				}
			}
		case "configChanges":
			s.next.ConfigChanges = entities.ConfigChanges(value)
		default:
			s.t.Fatalf("no setting %q of the service", key)
		}
	}
}

// reading reads `v2 SUCCEEDED`, `v1+v2 PENDING`, `v2 SUCCEEDED drifted`, `v2 PENDING as-declared why`, `nothing`, `error unreachable
// connection refused`; with a leading `stale` it is from before the last apply.
func reading(words []string) (entities.Reading, bool) {
	fresh := words[0] != "stale"
	if !fresh {
		words = words[1:]
	}
	switch words[0] {
	case "nothing":
		return entities.Reading{}, fresh
	case "error":
		return failedReading(words[1], words[2:]), fresh
	}
	o := entities.Object{Name: "web-1", Type: "process", Status: entities.ObjectStatus(words[1])}
	if len(words) > 2 && words[2] == "as-declared" {
		o.AsDeclared, words = true, slices.Delete(slices.Clone(words), 2, 3)
	}
	drifted := len(words) > 2 && words[2] == "drifted"
	if !drifted && len(words) > 2 {
		o.Message = strings.Join(words[2:], " ")
	}
	for _, v := range strings.Split(words[0], "+") {
		if v == "?" {
			v = ""
		}
		v, off := strings.CutSuffix(v, "-off")
		o.Versions = append(o.Versions, entities.ObjectVersion{Version: v, Active: !off, Drifted: drifted})
	}
	return entities.Reading{Objects: []entities.Object{o}}, fresh
}

// failedReading is a failed reading as runtimes report it: "unreachable", or "unreachable-for-30s" from a runtime that knows when it last
// had an answer.
func failedReading(code string, message []string) entities.Reading {
	code, silent, _ := strings.Cut(code, "-for-")
	e := &entities.ReadingError{Code: code, Message: strings.Join(message, " "), NoAnswer: code == "unreachable" || code == entities.CodeNoWorker}
	e.Silent, _ = time.ParseDuration(silent)
	return entities.Reading{Err: e}
}

// answerQuery is the answer of an exit-code runtime about a version.
func (s *story) answerQuery(id entities.InstanceID, words []string) {
	var r entities.Reading
	switch words[0] {
	case "there":
		r = running(s.queries[id].Target.FullVersion, entities.ObjectSucceeded)
	case "work":
		r = workPending()
		r.Objects[0].Message = "fetch reports work to do"
	case "error":
		r = entities.Reading{Err: &entities.ReadingError{Code: "fetch-failed", Message: strings.Join(words[1:], " ")}}
	default:
		s.t.Fatalf("no answer %q", words[0])
	}
	s.answer(id, r)
}

func (s *story) journal() string {
	var b strings.Builder
	for _, l := range s.s.Journal {
		if l.N > s.journalSeen {
			s.journalSeen = l.N
			fmt.Fprintln(&b, strings.Join(strings.Fields(l.At.Format("15:04:05")+" "+l.Channel+" "+l.Text), " "))
		}
	}
	return b.String()
}

func (s *story) watches() string {
	var b strings.Builder
	for _, w := range decide.RequiredObservations(s.s, false) {
		fmt.Fprintf(&b, "%s:", w.Key())
		for _, l := range w.Instances {
			known := " (known)"
			if l.Known == "" {
				known = ""
			}
			version := l.Target.FullVersion
			if version == "" {
				version = "?"
			}
			fmt.Fprintf(&b, " %s %s%s", l.Instance, version, known)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (s *story) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}
