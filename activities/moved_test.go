package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// The removal of a previous placement uses the claim of its successor. It is refused once a run that is unknown here has made a later
// claim. Below the current target it claims a position of its own, which the runtime checks. If both runtimes are the same, nothing is
// removed.
func TestPreviousPlacementIsRemoved_A24(t *testing.T) {
	a := newActivities(t, &server{})
	a.Epoch = 1
	put := func(name, context string) string {
		digest, err := a.Store.PutRuntime(t.Context(), entities.RuntimeDefinition{
			Name: name, Kind: entities.RuntimeKubernetes, Kubernetes: &entities.KubernetesRuntime{Context: context},
		})
		require.NoError(t, err)
		return digest
	}
	payload, err := a.Store.PutPayload(t.Context(), entities.Payload{Application: "shop", Service: "web", Channel: "prod", Runtime: "eu"})
	require.NoError(t, err)
	rt := &removableRuntime{}
	a.Factories = map[entities.RuntimeKind]Factory{
		entities.RuntimeKubernetes: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return rt, nil },
	}
	eu, us, renamed := put("eu", "eu"), put("us", "us"), put("europe", "eu")
	v2 := protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v2", Payload: "p2"}
	request := protocol.RemoveRequest{
		Application: "shop", Service: "web", ServiceID: "shop.web", Runtime: "eu", RuntimeDigest: eu, Timeout: time.Minute, Sequence: 2,
		Instance:  protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v1", Payload: payload},
		Successor: &protocol.Successor{Runtime: "us", RuntimeDigest: us, Instance: v2, Sequence: 3},
	}
	owner := runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only("prod")}
	by, _, err := a.fence(t.Context(), owner, a.fenceOf(v2, 3)) // as it was applied
	require.NoError(t, err)
	require.Nil(t, by)
	answer, _, err := run[protocol.RemoveAnswer](t, a.Remove, request)
	require.NoError(t, err)
	require.Equal(t, protocol.RemoveAnswer{}, answer)
	require.Len(t, rt.removed, 1)
	require.Equal(t, int64(2), rt.removed[0].Fence.Sequence)

	same := request
	same.Successor = &protocol.Successor{Runtime: "europe", RuntimeDigest: renamed, Instance: v2, Sequence: 3}
	answer, _, err = run[protocol.RemoveAnswer](t, a.Remove, same)
	require.NoError(t, err)
	require.Equal(t, protocol.RemoveAnswer{Renamed: true}, answer)

	// It moved back to eu.
	by, _, err = a.fence(t.Context(), owner, a.fenceOf(protocol.InstanceRef{ID: v2.ID, FullVersion: "v1", Payload: payload}, 5))
	require.NoError(t, err)
	require.Nil(t, by)
	answer, _, err = run[protocol.RemoveAnswer](t, a.Remove, request)
	require.NoError(t, err)
	require.Contains(t, answer.Err, "refused: a run that is unknown here claimed v1 later (5, this one 3)")
	require.Len(t, rt.removed, 1, "no further removal")
}
