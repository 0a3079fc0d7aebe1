package ecs

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// Where nothing may be written, a service that somebody else deployed is recognised by its content, what differs is named, and no call
// writes.
func TestReadOnlyRecognisesAServiceOfOthers_A25(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.createManually("legacy")
	l.Advance(10 * 60e9)
	found, err := l.Discover(l.ctx)
	require.NoError(t, err)
	in := adoptedRequest(t, found[0], "v1", 1)
	in.Payload.ECS.Adopt = false
	def := l.def
	def.ReadOnly = true
	accounts := &Accounts{Configure: l.configure, timing: fastTiming()}
	t.Cleanup(accounts.Close)
	r, err := Connect(def, accounts)
	require.NoError(t, err)

	l.ResetCalls()
	objects, err := r.Observe(l.ctx, in)
	require.NoError(t, err)
	require.Len(t, objects, 1)
	require.Equal(t, entities.ObjectSucceeded, objects[0].Status, objects[0])
	require.Len(t, objects[0].Versions, 1)
	require.Equal(t, "v1", objects[0].Versions[0].Version)
	changes, err := r.(runtimes.Planner).Plan(l.ctx, in)
	require.NoError(t, err)
	require.Empty(t, changes)

	next := adoptedRequest(t, found[0], "v2", 2)
	next.Payload.ECS.Objects[0] = []byte(strings.Replace(string(next.Payload.ECS.Objects[0]), "shop/web:v1", "shop/web:v2", 1))
	objects, err = r.Observe(l.ctx, next)
	require.NoError(t, err)
	require.Empty(t, objects[0].Versions[0].Version)
	require.Contains(t, objects[0].Message, "it runs legacy:1, which another owner registered")
	changes, err = r.(runtimes.Planner).Plan(l.ctx, next)
	require.NoError(t, err)
	require.Equal(t, []runtimes.Action{runtimes.ActionCreate, runtimes.ActionUpdate}, []runtimes.Action{changes[0].Action, changes[1].Action})

	_, err = r.Apply(l.ctx, in)
	require.ErrorContains(t, err, "has access: read: nothing is applied there")
	require.True(t, runtimes.IsPermanent(err))
	_, removes := r.(runtimes.Remover)
	require.False(t, removes)
	reader := r.(*readOnly).runtime.cluster
	client, err := reader.account.client(l.ctx)
	require.NoError(t, err)
	_, err = call(l.ctx, reader, serviceWrites, client.UpdateService, &ecs.UpdateServiceInput{Service: aws.String("legacy")})
	require.ErrorContains(t, err, "the runtime has access: read")
	require.Zero(t, writes(l.Calls()), "%v", l.Calls())
}
