package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// twoServices are web and api, whose production waits for a person.
var twoServices = strings.Replace(stage.TwoChannels, "{releaseChannel: staging}}]", "{releaseChannel: staging}}, {manualApproval: {}}]", 1) +
	stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1)

// jointly releases versions of several services under one id.
func jointly(w *stage.World, id string, services map[string]protocol.ServiceVersion) (answer protocol.JointAnswer, err error) {
	w.T.Helper()
	err = w.Update(protocol.ApplicationID(w.App), protocol.Release, protocol.JointRequest{
		RequestMeta: protocol.RequestMeta{By: "alice"}, ID: id, Services: services,
	}, &answer)
	return answer, err
}

func versionsOf(services map[string]string) map[string]protocol.ServiceVersion {
	out := map[string]protocol.ServiceVersion{}
	for service, version := range services {
		out[service] = protocol.ServiceVersion{Version: version}
	}
	return out
}

func applicationStatus(w *stage.World) (s protocol.ApplicationStatus) {
	w.T.Helper()
	value, err := temporaltest.Query(w.T.Context(), w.Client, protocol.ApplicationID(w.App), protocol.QueryStatus)
	require.NoError(w.T, err)
	require.NoError(w.T, value.Get(&s))
	return s
}

// ids are those of a service's releases, newest first.
func ids(s protocol.Status) (out []string) {
	for _, r := range s.Releases {
		out = append(out, r.ID+" "+r.Version)
	}
	return out
}

// One release names versions of two services: each converges its part, and what people say by its id concerns its part alone.
func TestJointReleaseIsOne_B8(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(twoServices)
	w.Publish()
	wanted := map[string]string{"web": "v1", "api": "w1"}
	answer, err := jointly(w.World, "autumn", versionsOf(wanted))
	require.NoError(t, err)
	require.Equal(t, protocol.JointAnswer{ID: "autumn", Services: wanted}, answer)
	for service, version := range wanted {
		s := w.Await(service, "staging CONVERGED "+version+", production WAITING_MANUAL_APPROVAL")
		require.Equal(t, []string{"autumn " + version}, ids(s))
		require.Equal(t, "alice", s.Releases[0].By)
	}
	for service, version := range wanted {
		w.Act(service, protocol.Approve, `{"by":"bob","version":"@autumn","topic":"production"}`)
		w.Await(service, "staging CONVERGED "+version+", production CONVERGED "+version)
	}
	status := applicationStatus(w.World)
	require.Len(t, status.Releases, 1)
	require.Equal(t, protocol.JointCommitted, status.Releases[0].Phase)
	require.Equal(t, wanted, status.Releases[0].Services)

	again, err := jointly(w.World, "autumn", versionsOf(wanted))
	require.NoError(t, err)
	require.Equal(t, protocol.JointAnswer{ID: "autumn", Services: wanted, Repeated: true}, again)
	_, err = jointly(w.World, "autumn", versionsOf(map[string]string{"web": "v2", "api": "w1"}))
	require.ErrorContains(t, err, "release autumn of "+w.App+" was proposed with other versions by alice")

	answer, err = jointly(w.World, "", versionsOf(map[string]string{"web": "v2", "api": "w2"}))
	require.NoError(t, err)
	byID := protocol.VersionRequest{RequestMeta: protocol.RequestMeta{By: "bob"}, Version: "@" + answer.ID}
	var said protocol.Answer
	w.Await("web", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	require.NoError(t, w.Update(w.ID("web"), protocol.Cancel, byID, &said))
	require.Contains(t, said.Message, "v2 cancelled in production")
	w.Await("api", "staging CONVERGED w2, production WAITING_MANUAL_APPROVAL w1")
	require.NoError(t, w.Update(w.ID("api"), protocol.Rollback, byID, &said))
	require.Contains(t, said.Message, "w2 is rolled back in staging to w1")
	require.ErrorContains(t, w.Update(w.ID("api"), protocol.Cancel, protocol.VersionRequest{RequestMeta: byID.RequestMeta, Version: "@winter"}, &said), "has no release winter")
}

// One service that refuses its part has all of it refused: no release anywhere, no meaning of a version, no promise. The answer
// names who refused and why.
func TestJointReleaseIsRefusedWhole_B8(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(twoServices)
	w.Publish()
	other := map[string]any{"greeting": "hi"}
	_, err := jointly(w.World, "autumn", map[string]protocol.ServiceVersion{
		"web": {Version: "v1", Parameters: other},
		"api": {Version: "w1", Parameters: map[string]any{"colour": "red"}},
	})
	require.ErrorContains(t, err, "release autumn is refused: api: ")
	require.ErrorContains(t, err, "colour")
	require.NotContains(t, err.Error(), "web: ")
	for _, service := range []string{"web", "api"} {
		require.Empty(t, w.Status(service).Releases, service)
	}
	require.Equal(t, protocol.JointAborted, applicationStatus(w.World).Releases[0].Phase)

	_, err = jointly(w.World, "", versionsOf(map[string]string{"web": "v1", "cellar": "v1"}))
	require.ErrorContains(t, err, `declares no service "cellar"; expected one of api, web`)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // a promise ends a moment after the answer
		var answer protocol.ReleaseAnswer
		err := w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
			RequestMeta: protocol.RequestMeta{By: "test"}, Version: "v1", Parameters: map[string]any{"greeting": "moin"},
		}, &answer)
		if err == nil {
			return true, ""
		}
		require.NotContains(t, err.Error(), "other parameters", "it means nothing yet")
		return false, err.Error()
	})
	w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
}

// Releases of several services that come at once, over as many runs as it takes, are carried out in one order everywhere: that in
// which they were accepted.
func TestJointReleasesKeepOneOrder_B8(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 30)
	w.Write(stage.TwoChannels + stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1))
	w.Publish()
	const many = 9 // as many as are kept once they are over
	var last string
	for n := range many {
		last = fmt.Sprint("v", n)
		payload := protocol.JointRequest{
			RequestMeta: protocol.RequestMeta{By: "ci"}, ID: "joint-" + last, Services: versionsOf(map[string]string{"web": last, "api": last}),
		}
		require.NoError(t, w.Client.SignalWorkflow(t.Context(), protocol.ApplicationID(w.App), "", protocol.Release, payload))
	}
	want := "staging CONVERGED " + last + ", production CONVERGED " + last
	w.Await("web", want)
	w.Await("api", want)
	var order []string
	for n := many - 1; n >= 0; n-- {
		order = append(order, fmt.Sprintf("joint-v%d v%d", n, n))
	}
	require.Equal(t, order, ids(w.Status("web")))
	require.Equal(t, order, ids(w.Status("api")))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		runs := w.runsOf(protocol.ApplicationID(w.App))
		return runs > 1, fmt.Sprintf("%d runs", runs)
	})
	for _, j := range applicationStatus(w.World).Releases {
		require.Equal(t, protocol.JointCommitted, j.Phase)
		require.Empty(t, j.Waiting)
	}
	for _, id := range []string{protocol.ApplicationID(w.App), w.ID("web")} {
		require.NoError(t, replayer(t).ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: w.History(id)}))
	}
}

// A service that nobody looks after has all of a release refused; one that is paused takes its part, which waits there.
func TestJointReleaseOfServicesThatAreDownOrPaused_B8(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1))
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Act("api", protocol.Pause, `{"by":"bob","reason":"drill"}`)
	_, err := jointly(w.World, "autumn", versionsOf(map[string]string{"web": "v2", "api": "w2"}))
	require.NoError(t, err)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, []string{"autumn w2"}, ids(w.Await("api", "staging PAUSED, production PAUSED")))

	var said protocol.Answer
	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Unmanage, protocol.ManageRequest{
		RequestMeta: protocol.RequestMeta{By: "bob", Reason: "moving"}, Service: "api",
	}, &said))
	_, err = jointly(w.World, "", versionsOf(map[string]string{"web": "v3", "api": "w3"}))
	require.ErrorContains(t, err, w.App+"/api is unmanaged by bob: moving")
	require.Len(t, w.Status("web").Releases, 2)
}
