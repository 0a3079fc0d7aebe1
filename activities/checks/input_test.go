package checks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes/custom"
)

// document is the release data of fakeStatus, in the form that commands get.
const document = `{"schema":"converge.check/v1","application":"shop","service":"web","serviceId":"id-1","channel":"prod",` +
	`"release":{"id":"r2","version":"v2","fullVersion":"v2-i7","incarnation":7,"by":"ci","proven":false,"at":"2026-11-23T08:00:00Z"},` +
	`"phases":{"prod":"in progress","staging":"succeeded"},` +
	`"channels":[{"name":"staging","status":"CONVERGED","health":"","current":"v2-i7","target":"v2-i7"},` +
	`{"name":"prod","status":"CONVERGING","health":"","current":"v1","target":"v2-i7"}],` +
	`"objects":[{"name":"routes","objectType":"Ingress","status":"PENDING","message":"no address yet"},` +
	`{"name":"web","objectType":"Deployment","versions":[{"version":"v2-i7","active":true}],"status":"SUCCEEDED"}],"omitted":2}`

// A command reads the data of the release from a file. Without the data it does not run.
func TestCommandReadsTheReleaseData_A20_D16(t *testing.T) {
	t.Parallel()
	a := newRequest(entities.CheckCommand, func(d *entities.CheckDefinition) {
		d.Command = &entities.CheckRun{Command: entities.Command{Argv: []string{"sh", "-c", `cat "$PVN_CHECK_FILE"; exit 1`}, Timeout: time.Minute}}
	})
	var once custom.StandaloneCommand
	checks.Evaluate(t.Context(), checks.Sources{Own: fakeStatus, Commands: recordingRunner{&once}}, a)
	require.Equal(t, document, once.Document)
	out, _, err := custom.RunStandalone(t.Context(), custom.Worker{}, once)
	require.NoError(t, err)
	require.Equal(t, document, out.Stdout)

	unavailable := func(context.Context) (protocol.Status, error) { return protocol.Status{}, errors.New("no answer") }
	r := checks.Evaluate(t.Context(), checks.Sources{Own: unavailable, Commands: recordingRunner{}}, a)
	require.Equal(t, "ERROR status of the release: no answer", string(r.Verdict)+" "+r.Reason)
}

// Commands and expressions receive the addons of the service (D1); an ECS task only if they fit. Without them nothing is evaluated.
func TestChecksReceiveAddons_A20_D1(t *testing.T) {
	t.Parallel()
	oncall := map[string]entities.Addon{"oncall": {Type: "example.com/oncall", Value: map[string]any{"team": "checkout"}}}
	inputOf := func(carried map[string]entities.Addon, kind entities.CheckKind, run *entities.CheckRun) (in entities.CheckInput) {
		var once custom.StandaloneCommand
		sources := checks.Sources{Own: fakeStatus, Commands: recordingRunner{&once}, Addons: func(context.Context) (map[string]entities.Addon, error) { return carried, nil }}
		checks.Evaluate(t.Context(), sources, newRequest(kind, func(d *entities.CheckDefinition) { d.Command = run }))
		require.NoError(t, json.Unmarshal([]byte(once.Document), &in))
		return in
	}
	smoke := entities.Command{Argv: []string{"smoke"}}
	task := &entities.CheckRun{Command: smoke, Task: &entities.CommandTask{TaskDefinition: "smoke:7"}}
	require.Equal(t, oncall, inputOf(oncall, entities.CheckCommand, &entities.CheckRun{Command: smoke}).Addons)
	require.Equal(t, oncall, inputOf(oncall, entities.CheckTask, task).Addons)
	large := map[string]entities.Addon{"book": {Type: "example.com/book", Value: map[string]any{"text": strings.Repeat("x", 5<<10)}}}
	require.Equal(t, large, inputOf(large, entities.CheckCommand, &entities.CheckRun{Command: smoke}).Addons)
	in := inputOf(large, entities.CheckTask, task)
	require.Empty(t, in.Addons)
	require.Equal(t, 1, in.OmittedAddons)

	evaluate := func(addons func(context.Context) (map[string]entities.Addon, error)) string {
		r := checks.Evaluate(t.Context(), checks.Sources{Own: fakeStatus, Addons: addons}, newRequest(entities.CheckCEL, func(d *entities.CheckDefinition) {
			d.CEL = &entities.CELCheck{Expression: `addons.oncall.value.team == "checkout"`}
		}))
		return string(r.Verdict) + " " + r.Reason
	}
	require.Contains(t, evaluate(func(context.Context) (map[string]entities.Addon, error) { return oncall, nil }), "PASS ")
	unavailable := func(context.Context) (map[string]entities.Addon, error) { return nil, errors.New("no answer") }
	require.Equal(t, "ERROR the addons of the service: no answer", evaluate(unavailable))
}

// Data that does not fit is dropped from the end. An ECS task has little space.
func TestCheckInputIsBounded_A20(t *testing.T) {
	t.Parallel()
	large := func(ctx context.Context) (protocol.Status, error) {
		s, err := fakeStatus(ctx)
		s.Channels[1].Objects = slices.Repeat(s.Channels[1].Objects[:1], 2000)
		for n := range 100 {
			s.Channels = append(s.Channels, protocol.ChannelStatus{Name: fmt.Sprint("eu-", n), Status: "CONVERGED"})
			s.Releases[0].Phases[fmt.Sprint("eu-", n)] = "succeeded"
		}
		return s, err
	}
	inputOf := func(d *entities.CheckRun, kind entities.CheckKind) (in entities.CheckInput, size int) {
		d.Command = entities.Command{Argv: []string{"smoke"}}
		var once custom.StandaloneCommand
		checks.Evaluate(t.Context(), checks.Sources{Own: large, Commands: recordingRunner{&once}}, newRequest(kind, func(c *entities.CheckDefinition) { c.Command = d }))
		require.NoError(t, json.Unmarshal([]byte(once.Document), &in))
		return in, len(once.Document)
	}
	in, size := inputOf(&entities.CheckRun{}, entities.CheckCommand)
	require.LessOrEqual(t, size, 64<<10)
	require.NotEmpty(t, in.Objects)
	require.Equal(t, 2002, len(in.Objects)+in.Omitted)
	require.Len(t, in.Channels, 102)
	in, size = inputOf(&entities.CheckRun{Task: &entities.CommandTask{TaskDefinition: "smoke:7"}}, entities.CheckTask)
	require.LessOrEqual(t, size, 4<<10)
	require.Equal(t, 2002, in.Omitted)
	require.Equal(t, []entities.CheckChannel{{Name: "prod", Status: "CONVERGING", Current: "v1", Target: "v2-i7"}}, in.Channels)
	require.Equal(t, map[string]string{"prod": "in progress"}, in.Phases)
}

func TestCEL_A20(t *testing.T) {
	t.Parallel()
	sources := checks.Sources{Own: fakeStatus}
	row := func(expression, message string, fails bool) checks.Request {
		return newRequest(entities.CheckCEL, func(d *entities.CheckDefinition) {
			d.CEL = &entities.CELCheck{Expression: expression, Message: message, Fails: fails}
		})
	}
	stable := `objects.all(o, o.status == "SUCCEEDED")`
	last := checks.Sources{Own: func(ctx context.Context) (protocol.Status, error) { // more than fits, and the failed ones are last
		s, err := fakeStatus(ctx)
		good := entities.Object{Name: "web", Type: "Deployment", Status: entities.ObjectSucceeded, Message: strings.Repeat("fine ", 50)}
		s.Channels[1].Objects = append(slices.Repeat([]entities.Object{good}, 1000), entities.Object{Name: "bad", Type: "Deployment", Status: entities.ObjectFailed})
		return s, err
	}}
	proven := checks.Sources{Own: func(ctx context.Context) (protocol.Status, error) {
		s, err := fakeStatus(ctx)
		s.Releases[0].Proven = true
		return s, err
	}}
	Conform(t, Kind{Kind: entities.CheckCEL, Rows: []Row{
		{Name: "true", Sources: sources, Request: row(`phases["staging"] == "succeeded"`, "", false), Want: entities.Pass, Reason: `true: phases["staging"] == "succeeded"`},
		{Name: "false", Sources: sources, Request: row(stable, "", false), Want: entities.Wait, Reason: "false: " + stable},
		{Name: "failed objects are not cut off", Sources: last, Request: row("omitted > 0 && "+stable, "", false), Want: entities.Wait, Reason: "false: omitted > 0 && " + stable},
		{Name: "proven", Sources: proven, Request: row("release.proven", "", false), Want: entities.Pass, Reason: "true: release.proven"},
		{Name: "only stated", Sources: sources, Request: row("release.proven", "", false), Want: entities.Wait, Reason: "false: release.proven"},
		{Name: "false fails", Sources: sources, Request: row(stable, "${{ version }} is not whole", true), Want: entities.Fail, Reason: "v2 is not whole"},
		{Name: "missing", Sources: sources, Request: row(`phases["x"] == ""`, "", true), Want: entities.Error, Reason: "the expression: no such key: x"},
		{Name: "of another version", Sources: sources, Request: row(`release.color == "red"`, "", true), Want: entities.Error, Reason: "column 8: undefined field 'color'"},
	}})
}
