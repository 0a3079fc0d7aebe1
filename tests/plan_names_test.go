package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A plan of another name says that, and that nothing is applied or removed for it. From then on plans speak of the service by that name,
// and compare with what it was.
func TestPlanUnderAnotherName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	called := strings.ReplaceAll(stage.TwoChannels+stage.Web, "name: web", "name: frontend\nrenamedFrom: web")
	w.Write(called)
	plan := w.planDirectory()
	require.Empty(t, plan.Services)
	require.Empty(t, plan.Removed)
	require.Contains(t, plan.Rules.String(), "frontend changed\n  rules\n    ~ name  web → frontend")
	w.Publish()
	w.AwaitThat("web", "the new name", func(s protocol.Status) bool { return s.Service == "frontend" })
	require.True(t, w.planDirectory().Empty())

	w.Write(strings.ReplaceAll(called, "default: hello", "default: hi"))
	plan = w.planDirectory()
	require.Len(t, plan.Services, 1)
	require.Equal(t, "frontend", plan.Services[0].Service)
	require.Equal(t, "v1-i3", plan.Services[0].Channels[0].Version)

	release, err := w.planner().Release(t.Context(), preview.Release{Application: w.newest(), Service: "frontend", Version: "v2"})
	require.NoError(t, err)
	require.Equal(t, "frontend", release.Services[0].Service)
	require.Len(t, release.Services[0].Channels, 2)
	require.Equal(t, 1, w.Fake.At(w.App, "web", "staging").Applies())
}
