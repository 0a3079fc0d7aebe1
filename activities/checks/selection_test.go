package checks_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes/custom"
)

// selectionRequest returns a request that runs a script to select the next of eu-1, which is updated, and eu-2.
func selectionRequest(script string, change func(*entities.CheckDefinition)) checks.Request {
	a := newRequest(entities.CheckSelection, func(d *entities.CheckDefinition) {
		d.ID = entities.SelectionID
		d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"sh", "-c", script}, Timeout: time.Minute}}
		d.RuntimeLabels = map[string]map[string]string{"r2": {"country": "fr"}}
		change(d)
	})
	a.Evaluation.ID = entities.SelectionID
	a.Evaluation.Candidates = `[{"name":"eu-1","runtime":"r1","updated":true,"stable":true,"since":"2026-11-23T08:30:00Z","held":false},` +
		`{"name":"eu-2","runtime":"r2","updated":false,"stable":true,"held":false}]`
	return a
}

// A command gets the release and all instances, with the labels of their runtimes, and runs like the command of a check. An invalid output,
// and any exit code but 0, is an ERROR, and nothing is selected.
func TestSelection_D24_A20(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	programtest.Write(t, filepath.Join(dir, "select.sh"), "#!/bin/sh\ncat \"$PVN_CHECK_FILE\" >input.json\n"+
		`echo "{\"next\": [\"eu-2\"], \"askAgain\": \"$EVERY\"}"`+"\n")
	here := checks.Sources{Own: fakeStatus, Commands: checks.CommandsOn(custom.Worker{Secrets: token})}
	same := func(*entities.CheckDefinition) {}
	r := checks.Evaluate(t.Context(), here, selectionRequest("", func(d *entities.CheckDefinition) {
		d.Dir, d.Command.Command.Argv, d.Command.Env = dir, []string{"./select.sh"}, map[string]entities.Value{"EVERY": {Literal: "5m"}}
	}))
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	require.Equal(t, entities.CheckReading{
		Verdict: entities.Pass, Reason: "selects eu-2; runs again after 5m", Selected: []string{"eu-2"}, At: now, Retry: now.Add(5 * time.Minute),
	}, r)
	input, err := os.ReadFile(filepath.Join(dir, "input.json"))
	require.NoError(t, err)
	var in struct {
		Schema, Channel string
		Release         entities.CheckRelease
		Objects         []any
		Omitted         int
		Instances       json.RawMessage
		Now             time.Time
	}
	require.NoError(t, json.Unmarshal(input, &in))
	require.Equal(t, []any{"converge.selection/v1", "prod", "v2", "ci", now}, []any{in.Schema, in.Channel, in.Release.Version, in.Release.By, in.Now})
	require.Empty(t, in.Objects)
	require.Equal(t, 4, in.Omitted)
	require.JSONEq(t, `[{"name":"eu-1","runtime":"r1","updated":true,"stable":true,"since":"2026-11-23T08:30:00Z","held":false},`+
		`{"name":"eu-2","runtime":"r2","labels":{"country":"fr"},"updated":false,"stable":true,"held":false}]`, string(in.Instances))

	unavailable := func(context.Context) (protocol.Status, error) { return protocol.Status{}, os.ErrDeadlineExceeded }
	Conform(t, Kind{Kind: entities.CheckSelection, Rows: []Row{
		{Name: "one", Sources: here, Request: selectionRequest(`echo '{"next": ["eu-2"]}'`, same), Want: entities.Pass, Reason: "selects eu-2"},
		{Name: "none", Sources: here, Request: selectionRequest(`echo '{"next": []}'`, same), Want: entities.Wait, Reason: "selects none now"},
		{Name: "updated", Sources: here, Request: selectionRequest(`echo '{"next": ["eu-1"]}'`, same), Want: entities.Error, Reason: `sh: it selects "eu-1", which is updated already`},
		{Name: "garbage", Sources: here, Request: selectionRequest("echo eu-2", same), Want: entities.Error, Reason: `sh: it printed "eu-2"; expected JSON such as {"next": ["eu-1"], "askAgain": "10m"}`},
		{Name: "nothing", Sources: here, Request: selectionRequest("true", same), Want: entities.Error, Reason: `sh: it printed ""; expected JSON…`},
		{Name: "failed", Sources: here, Request: selectionRequest(`echo '{"next": ["eu-2"]}'; echo no quorum >&2; exit 2`, same), Want: entities.Error, Reason: "sh exited 2: no quorum"},
		{Name: "killed", Sources: here, Request: selectionRequest(`echo '{"next": ["eu-2"]}'; kill -9 $$`, same), Want: entities.Error, Reason: "sh was ended by signal killed"},
		{Name: "endless", Sources: here, Request: selectionRequest(`echo '{"next": ["eu-2"]}'; head -c 100000 /dev/zero`, same), Want: entities.Error, Reason: "sh: it printed more than 12 KiB"},
		{Name: "too slow", Sources: here, Request: selectionRequest(`echo '{"next": ["eu-2"]}'; exec sleep 600`, func(d *entities.CheckDefinition) {
			d.Command.Command.Timeout = 50 * time.Millisecond
		}), Want: entities.Error, Reason: "selection: sh did not finish within 50ms and was ended…"},
		{Name: "a secret", Sources: here, Request: selectionRequest(`echo "$TOKEN"`, func(d *entities.CheckDefinition) {
			d.Command.Env = map[string]entities.Value{"TOKEN": {WorkerEnv: "TOKEN"}}
		}), Want: entities.Error, Reason: `sh: it printed "***"; expected JSON…`},
		{Name: "no worker for it", Sources: checks.Sources{Own: fakeStatus}, Request: selectionRequest("true", same), Want: entities.Error, Reason: "commands are not available here"},
		{Name: "unknown release", Sources: checks.Sources{Own: unavailable, Commands: recordingRunner{}}, Request: selectionRequest("true", same), Want: entities.Error, Reason: "status of the release: i/o timeout"},
		{Name: "a Job", Sources: here, Request: selectionRequest("true", func(d *entities.CheckDefinition) { d.Command.Job = &entities.CommandJob{} }), Want: entities.Error, Reason: "its definition lacks selection"},
	}})
}
