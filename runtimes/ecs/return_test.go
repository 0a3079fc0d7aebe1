package ecs

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// A returned service keeps running, has none of our tags, and is then recognised as that of another owner. A repetition changes nothing.
func TestReturnRemovesTagsAndDeploysNothing_A25(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.createManually("legacy")
	l.Advance(10 * 60e9)
	found, err := l.Discover(l.ctx)
	require.NoError(t, err)
	in := adoptedRequest(t, found[0], "v1", 1)
	l.apply(in)
	l.advanceUntil(in, stable("v1"))

	l.ResetCalls()
	said, err := l.Return(l.ctx, in)
	require.NoError(t, err)
	require.Equal(t, []string{"the service legacy given up"}, said)
	require.Equal(t, 2, writes(l.Calls()), "%v", l.Calls())
	require.Equal(t, 2, l.Calls()["UntagResource"], "of the task definition, and of the service")
	out, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: []string{"legacy"}, Include: []types.ServiceField{types.ServiceFieldTags}})
	require.NoError(t, err)
	for _, tag := range out.Services[0].Tags {
		require.False(t, strings.HasPrefix(*tag.Key, "converge:"), *tag.Key)
	}
	require.Len(t, out.Services[0].Deployments, 1)

	again, err := l.worker().Return(l.ctx, in)
	require.NoError(t, err)
	require.Equal(t, []string{"no service of ours to give up"}, again)

	reported := in
	reported.ReportOnly = true
	objects, err := l.worker().Observe(l.ctx, reported)
	require.NoError(t, err)
	require.Equal(t, "v1", objects[0].Versions[0].Version, "recognised by its content")
}
