package tests

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// drained is a world with a server of its own, since who drains a runtime asks every service there is.
type drained struct {
	*stage.World
	runtime string
}

func newDrained(t *testing.T, runtime string) *drained {
	w := shared.OwnServer(t, 0)
	return &drained{w, w.App + "-" + runtime}
}

// start has the workflow of the runtime, as the CLI does.
func (d *drained) start() {
	d.T.Helper()
	_, err := d.Client.ExecuteWorkflow(d.T.Context(), client.StartWorkflowOptions{ID: protocol.RuntimeID(d.runtime), TaskQueue: protocol.TaskQueue},
		protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: d.runtime, StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(d.T, err)
}

func (d *drained) act(verb string, force bool) (string, error) {
	d.T.Helper()
	var answer protocol.Answer
	err := d.Update(protocol.RuntimeID(d.runtime), verb, protocol.DrainRequest{RequestMeta: protocol.RequestMeta{By: "carol", Reason: "new nodes"}, Force: force}, &answer)
	return answer.Message, err
}

// awaitRuntime waits until the runtime says of its pause what is wanted.
func (d *drained) awaitRuntime(what string, cond func(protocol.RuntimeStatus) bool) {
	d.T.Helper()
	temporaltest.WaitFor(d.T, stage.Patience, func() (bool, string) {
		var s protocol.RuntimeStatus
		value, err := temporaltest.Query(d.T.Context(), d.Client, protocol.RuntimeID(d.runtime), protocol.QueryStatus)
		if err == nil {
			err = value.Get(&s)
		}
		if err != nil {
			return false, err.Error()
		}
		have := "nothing"
		if s.Pause != nil && s.Pause.Drain != nil {
			for _, permit := range s.Pause.Drain.Permits {
				have += "; " + permit.Service + " waits " + permit.WaitsFor
			}
		}
		return cond(s), what + ": " + have
	})
}

// awaitReason waits until an instance on the runtime says that.
func (d *drained) awaitReason(service, want string) {
	d.T.Helper()
	d.AwaitThat(service, want, func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Channels, func(c protocol.ChannelStatus) bool {
			return slices.ContainsFunc(c.Instances, func(i protocol.InstanceStatus) bool { return i.Runtime == d.runtime && i.Reason == want })
		})
	})
}

func (d *drained) at(service string) *fakeruntime.ScriptedInstance {
	return d.Fake.At(d.App, service, "production/"+d.runtime)
}

func (d *drained) awaitVersion(service, want string) {
	d.T.Helper()
	temporaltest.WaitFor(d.T, stage.Patience, func() (bool, string) {
		have := d.at(service).Version()
		return have == want, service + " is at " + have + ", want " + want
	})
}

// Services that depend on each other leave a runtime in order, though its worker goes away meanwhile; releases go on without it; and
// they come back in order, at what was released meanwhile (A16).
func TestDrainAndRestoreInOrder_A16_A24(t *testing.T) {
	t.Parallel()
	d := newDrained(t, "eu")
	d.Write(fleet("autoRollback: false", "eu", "us") + `dependencies: [{service: api, rule: stable}]
---
apiVersion: converge/v1
kind: Service
name: api
onDelete: remove
dependencies: [{service: db, rule: stable}]
custom: {}
---
apiVersion: converge/v1
kind: Service
name: db
onDelete: remove
custom: {}
`)
	d.Publish()
	services := []string{"db", "api", "web"}
	for _, service := range services {
		d.Release(service, "v1")
		d.Await(service, "production CONVERGED v1")
	}
	by := d.runtime + " is drained by carol: new nodes: "
	d.start()

	letGo := d.at("api").HangApplies()
	text, err := d.act(protocol.Drain, false)
	require.NoError(t, err)
	require.Contains(t, text, "is being drained")
	d.awaitVersion("web", "")
	d.awaitReason("db", by+"it is removed once "+d.App+"/api has left "+d.runtime)
	d.awaitReason("api", by+"being removed")
	require.Equal(t, "v1", d.at("db").Version())
	d.StopWorker()
	letGo()
	d.StartWorker()
	d.awaitVersion("db", "")
	require.Empty(t, d.at("api").Version())
	d.awaitRuntime("drained", func(s protocol.RuntimeStatus) bool { return s.Pause != nil && s.Pause.Drain.Done })
	text, err = d.act(protocol.Drain, false)
	require.NoError(t, err)
	require.Contains(t, text, "is already drained by carol")
	require.ErrorContains(t, d.Update(protocol.RuntimeID(d.runtime), protocol.Resume, protocol.RequestMeta{By: "carol"}, &protocol.Answer{}), "restore")

	d.Release("web", "v2")
	d.AwaitThat("web", "v2 elsewhere", func(s protocol.Status) bool {
		return s.Channels[0].Status == "CONVERGED" && s.Channels[0].Fleet.Version == "v2" && s.Channels[0].Fleet.AtVersion == 1
	})
	d.awaitReason("web", by+"removed until: converge runtime restore "+d.runtime)
	require.Empty(t, d.at("web").Version())

	letGo = d.at("db").HangApplies()
	_, err = d.act(protocol.Restore, false)
	require.NoError(t, err)
	d.awaitReason("api", by+"it returns once "+d.App+"/db is stable on "+d.runtime)
	d.awaitReason("web", by+"it returns once "+d.App+"/api is stable on "+d.runtime)
	d.StopWorker()
	letGo()
	d.StartWorker()
	d.awaitVersion("web", "v2")
	d.awaitVersion("api", "v1")
	d.awaitVersion("db", "v1")
	d.awaitRuntime("back", func(s protocol.RuntimeStatus) bool { return s.Pause == nil })
	for service, version := range map[string]string{"db": "v1", "api": "v1", "web": "v2"} {
		d.Await(service, "production CONVERGED "+version)
	}
	_, err = d.act(protocol.Restore, false)
	require.ErrorContains(t, err, "is not drained")
}

// What a channel has nowhere else stays, unless by force; what is there comes back all the same (A16).
func TestDrainOfTheOnlyInstance_A16(t *testing.T) {
	t.Parallel()
	d := newDrained(t, "rt")
	d.RunWeb()
	d.start()
	_, err := d.act(protocol.Drain, false)
	require.ErrorContains(t, err, "no instance of "+d.App+"/web production, "+d.App+"/web staging would be left; to drain it anyway: --force")
	d.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	_, err = d.act(protocol.Drain, true)
	require.NoError(t, err)
	d.Await("web", "staging PAUSED v1, production PAUSED v1")
	d.awaitRuntime("drained", func(s protocol.RuntimeStatus) bool { return s.Pause != nil && s.Pause.Drain.Done })
	require.Empty(t, d.Fake.At(d.App, "web", "staging").Version())
	d.Release("web", "v2")
	_, err = d.act(protocol.Restore, false)
	require.NoError(t, err)
	d.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}
