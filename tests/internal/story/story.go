package story

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// patience is the deadline of every wait.
const patience = time.Minute

// Config is the file that a story publishes when it names none.
const Config = "converge.yaml"

// script is the file of an archive that is played.
const script = "story"

// Player plays one story in a world of its own.
type Player struct {
	*stage.World
	// Words are replaced in all files and in the script.
	Words map[string]string
	// Config is published when a line names no file.
	Config string
	// More are lines of a test's own; they get what stands behind the first word.
	More map[string]func(rest string)

	site  *site
	files map[string]string
	at    string // the line that is played
	gates map[string]func()
}

// line is one of a script, taken apart, and the indented ones that follow it.
type line struct {
	id      string // of the workflow that it is about
	service string
	command string
	rest    string
	answer  string // after ->, without "refused: "
	refused bool
	below   []string
}

// New makes a player of a world.
func New(w *stage.World) *Player {
	p := &Player{World: w, Config: Config, site: newSite(w.T), gates: map[string]func(){}}
	p.Words = map[string]string{
		"SITE": p.site.URL, "HOST": strings.TrimPrefix(p.site.URL, "http://"), "DIR": w.Dir, "APP": w.App,
		"YESTERDAY": time.Now().AddDate(0, 0, -1).Format(time.DateOnly), "TOMORROW": time.Now().AddDate(0, 0, 1).Format(time.DateOnly),
		"SOON": time.Now().Add(4 * time.Second).Format(time.RFC3339),
	}
	w.T.Cleanup(func() { w.Retire("web", "lb", "api") })
	return p
}

// Play plays an archive.
func (p *Player) Play(archive *txtar.Archive) {
	p.T.Helper()
	p.files = map[string]string{}
	for _, f := range archive.Files {
		p.files[f.Name] = p.fill(string(f.Data))
	}
	for name, text := range p.files {
		if name == script || strings.HasSuffix(name, ".yaml") && !strings.Contains(name, "/") {
			continue
		}
		p.save(name, text)
	}
	text, ok := p.files[script]
	require.True(p.T, ok, "the archive has no file %q", script)
	for _, l := range p.lines(text) {
		p.play(l)
	}
	require.Empty(p.T, p.Fake.Overlaps())
}

func (p *Player) fill(text string) string {
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if value, ok := p.Words[word]; ok {
			return value
		}
		return word
	})
}

// words are what stands for something else, perhaps.
var words = regexp.MustCompile(`\b[A-Z]+\b`)

// save writes a file as a whole: what reads it at that time sees what was before, or all that is new.
func (p *Player) save(name, text string) {
	p.T.Helper()
	path := filepath.Join(p.Dir, filepath.FromSlash(name))
	require.NoError(p.T, os.MkdirAll(filepath.Dir(path), 0o700))
	mode := os.FileMode(0o600)
	if strings.HasPrefix(text, "#!") {
		mode = 0o700
	}
	require.NoError(p.T, os.WriteFile(path+"~", []byte(text), mode))
	require.NoError(p.T, os.Rename(path+"~", path))
}

func (p *Player) lines(text string) (out []line) {
	p.T.Helper()
	for _, raw := range strings.Split(text, "\n") {
		switch {
		case strings.TrimSpace(raw) == "" || strings.HasPrefix(raw, "#"):
		case strings.HasPrefix(raw, " "):
			require.NotEmpty(p.T, out, "an indented line follows nothing: %s", raw)
			last := &out[len(out)-1]
			last.below = append(last.below, strings.TrimSpace(raw))
		default:
			out = append(out, p.parse(raw))
		}
	}
	return out
}

func (p *Player) parse(raw string) line {
	l := line{service: "web"}
	first, rest, _ := strings.Cut(raw, " ")
	if name, named := strings.CutSuffix(first, ":"); named {
		l.service, raw = name, rest
	}
	switch l.service {
	case "application":
		l.id = protocol.ApplicationID(p.App)
	case "runtime":
		l.id = protocol.RuntimeID(p.App + "-rt")
	default:
		l.id = p.ID(l.service)
	}
	raw, l.answer, _ = strings.Cut(raw, " -> ")
	l.answer, l.refused = strings.CutPrefix(l.answer, "refused: ")
	l.command, l.rest, _ = strings.Cut(strings.TrimSpace(raw), " ")
	l.rest = strings.TrimSpace(l.rest)
	return l
}

// play carries out one line. A failure names it.
func (p *Player) play(l line) {
	p.T.Helper()
	p.at = strings.TrimSpace(l.service + ": " + l.command + " " + l.rest)
	p.T.Log(p.at)
	if do, ok := commands[l.command]; ok {
		do(p, l)
		return
	}
	if do, ok := p.More[l.command]; ok {
		do(l.rest)
		return
	}
	payload := p.payload(l.rest)
	if !l.refused {
		message, err := p.call(l, payload)
		require.NoError(p.T, err, p.at)
		require.Contains(p.T, message, l.answer, p.at)
		return
	}
	p.refuses(l, payload)
}

// payload is JSON of a line's YAML, its token signed.
func (p *Player) payload(text string) json.RawMessage {
	p.T.Helper()
	var fields map[string]any
	require.NoError(p.T, yaml.Unmarshal([]byte(text), &fields), p.at)
	if claims, ok := fields["token"].(map[string]any); ok {
		fields["token"] = p.site.sign(p.T, claims)
	}
	raw, err := json.Marshal(fields)
	require.NoError(p.T, err, p.at)
	return raw
}

// call makes an update, and returns the line that it answers; a release's names its version.
func (p *Player) call(l line, payload json.RawMessage) (string, error) {
	var answer struct {
		protocol.Answer
		Version string `json:"version"`
		Note    string `json:"note"`
	}
	err := p.Update(l.id, l.command, payload, &answer)
	return strings.TrimSpace(answer.Message + answer.Version + " " + answer.Note + " " + strings.Join(answer.Next, " ")), err
}

// refuses sends what must be refused, as an update and as a signal, and holds it to changing nothing.
func (p *Player) refuses(l line, payload json.RawMessage) {
	p.T.Helper()
	before, refusals := p.seen(l)
	_, err := p.call(l, payload)
	require.ErrorContains(p.T, err, l.answer, p.at)
	after, still := p.seen(l)
	require.Equal(p.T, before, after, "%s, as an update", p.at)
	require.Equal(p.T, refusals, still, "an update that is refused is returned to who asks: %s", p.at)

	payload = p.payload(l.rest) // a token serves one request
	require.NoError(p.T, p.Client.SignalWorkflow(p.T.Context(), l.id, "", l.command, payload))
	temporaltest.WaitFor(p.T, patience, func() (bool, string) {
		after, still = p.seen(l)
		return len(still) > 0 && (len(refusals) == 0 || still[len(still)-1] != refusals[len(refusals)-1]), p.at + ": not refused as a signal"
	})
	last := still[len(still)-1]
	require.Equal(p.T, l.command, last.Verb, p.at)
	require.Contains(p.T, last.Reason, l.answer, p.at)
	require.Equal(p.T, before, after, "%s, as a signal", p.at)
}

// seen is all that a workflow shows, but for what changes with every reading, and the signals that it refused.
func (p *Player) seen(l line) (string, []entities.Refusal) {
	p.T.Helper()
	value, err := temporaltest.Query(p.T.Context(), p.Client, l.id, protocol.QueryStatus)
	require.NoError(p.T, err, p.at)
	var all map[string]any
	var status struct {
		Refused []entities.Refusal `json:"refused"`
	}
	require.NoError(p.T, value.Get(&all))
	require.NoError(p.T, value.Get(&status))
	delete(all, "refused")
	still(all)
	if strings.HasPrefix(l.id, "service/") {
		all["trail"] = p.trailLength(l.service)
	}
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(p.T, err)
	return string(text), status.Refused
}

// still takes out what changes with every reading.
func still(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"observedAt", "nextChange", "nextCheck", "checks", "announcing"} {
			delete(v, name)
		}
		for _, inner := range v {
			still(inner)
		}
	case []any:
		for _, inner := range v {
			still(inner)
		}
	}
}

// trailLength is the number of the newest audit line.
func (p *Player) trailLength(service string) int64 {
	tail := p.tail(service)
	if n := len(tail.Entries); n > 0 {
		return tail.Entries[n-1].N
	}
	return tail.Stored
}

func (p *Player) tail(service string) (answer protocol.HistoryAnswer) {
	p.T.Helper()
	value, err := temporaltest.Query(p.T.Context(), p.Client, p.ID(service), protocol.QueryHistory)
	require.NoError(p.T, err, p.at)
	require.NoError(p.T, value.Get(&answer))
	return answer
}

// publishes makes a file the newest incarnation.
func (p *Player) publishes(l line) {
	p.T.Helper()
	name := l.rest
	if name == "" {
		name = p.Config
	}
	text, ok := p.files[name]
	require.True(p.T, ok, "the archive has no %s", name)
	p.save(Config, text)
	_, err := publish.Publish(p.T.Context(), publish.Options{Client: p.Client, Dir: p.Dir, StoreURL: p.Store, By: "ci", Fake: true})
	if l.refused {
		require.ErrorContains(p.T, err, l.answer, p.at)
		return
	}
	require.NoError(p.T, err, p.at)
}

// Load reads the stories of a folder.
func Load(t *testing.T, folder string) map[string]*txtar.Archive {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "no stories in %s", folder)
	out := map[string]*txtar.Archive{}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		require.NoError(t, err)
		out[strings.TrimSuffix(filepath.Base(path), ".txtar")] = archive
	}
	return out
}

// reason formats why a condition does not hold yet, with the line of the story.
func (p *Player) reason(format string, args ...any) string {
	return p.at + ": " + fmt.Sprintf(format, args...)
}
