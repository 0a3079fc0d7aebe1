package entities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

func TestChangedFieldsOfARuntimeAreNamedAsInAConfiguration(t *testing.T) {
	t.Parallel()
	custom := func(change func(*entities.RuntimeDefinition)) entities.RuntimeDefinition {
		d := entities.RuntimeDefinition{
			Name: "eu", Kind: entities.RuntimeCustom, Owner: "shop", Dir: "deploy", Labels: map[string]string{"zone": "a"},
			Custom: &entities.CustomRuntime{
				Apply: entities.Command{Argv: []string{"./apply"}}, Env: map[string]entities.Value{"TOKEN": {WorkerEnv: "TOKEN"}},
			},
			Timing: entities.RuntimeTiming{PollInterval: time.Second, ApplyTimeout: time.Minute, MaxAttempts: 3},
		}
		change(&d)
		return d
	}
	before := custom(func(*entities.RuntimeDefinition) {})
	for _, tt := range []struct {
		name   string
		change func(*entities.RuntimeDefinition)
		want   []string
	}{
		{"nothing", func(*entities.RuntimeDefinition) {}, nil},
		{"neither owner nor directory", func(d *entities.RuntimeDefinition) { d.Owner, d.Dir = "other", "elsewhere" }, nil},
		{"a command", func(d *entities.RuntimeDefinition) { d.Custom.Apply.Argv = []string{"./apply", "--now"} }, []string{"custom.apply.command"}},
		{"a new command", func(d *entities.RuntimeDefinition) { d.Custom.Watch = &entities.Command{Argv: []string{"./watch"}} }, []string{"custom.watch.command"}},
		{"a variable", func(d *entities.RuntimeDefinition) { d.Custom.Env["TOKEN"] = entities.Value{WorkerEnv: "KEY"} }, []string{"custom.env.TOKEN.workerEnv"}},
		{"labels", func(d *entities.RuntimeDefinition) { d.Labels = map[string]string{"region": "b"} }, []string{"labels.region", "labels.zone"}},
		{"timing", func(d *entities.RuntimeDefinition) {
			d.Timing = entities.RuntimeTiming{PollInterval: time.Minute, ApplyTimeout: time.Hour, MaxAttempts: 4}
		}, []string{"custom.apply.timeout", "custom.pollInterval", "custom.retry.maxAttempts"}},
		{
			"limits", func(d *entities.RuntimeDefinition) {
				d.MaxApplies, d.ApproveApplies, d.NoRollback, d.Remote = 2, true, true, true
			},
			[]string{"approval", "autoRollback", "maxConcurrentApplies", "worker"},
		},
	} {
		require.ElementsMatch(t, tt.want, custom(tt.change).ChangedFields(before), tt.name)
	}
}
