package ecs

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// renamed declares the service, and its family, by another name.
func renamed(name string) func(*serviceSpec) {
	return func(s *serviceSpec) {
		s.change = func(definition, service map[string]any) { definition["family"], service["serviceName"] = name, name }
	}
}

// A service that is declared by another name is created. The service with the former name stays, is reported, also by a new worker,
// does not affect the status, and is removed with the instance, or when a person deletes it.
func TestFormerServiceIsReported(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	foreign := requestFor("v1", 1, renamed("other"))
	foreign.Owner.Service = "other"
	l.applyStable(foreign)
	in := requestFor("v2", 2, renamed("site"))
	require.Contains(t, l.apply(in), "left the service web, whose name is no longer declared\ncreated the service site with site:1\n")
	l.advanceUntil(in, func(entities.Object) bool {
		_, all := l.readingLines(in)
		return entities.FetchObjects(all, &entities.Target{FullVersion: "v2"}).Stable
	})
	want := []string{
		"site SUCCEEDED; v2* 2/2",
		"web SUCCEEDED; left over from before the service was renamed to site, with 2 tasks; to remove it: aws ecs delete-service --force --cluster shop --service web",
	}
	lines, all := l.readingLines(in)
	require.Equal(t, want, lines)
	require.True(t, all[1].Orphaned)
	l.Runtime = l.worker()
	lines, _ = l.readingLines(in)
	require.Equal(t, want, lines)

	t.Run("the former name is declared again", func(t *testing.T) {
		back := requestFor("v3", 3)
		l.apply(back)
		l.Advance(10 * time.Minute)
		lines, _ := l.readingLines(back)
		require.Equal(t, "web SUCCEEDED; v3* 2/2", lines[0])
		require.Contains(t, lines[1], "site SUCCEEDED; left over from before the service was renamed to web")
	})
	_, err := l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("site"), Force: aws.Bool(true)})
	require.NoError(t, err)
	l.Advance(10 * time.Minute)
	lines, _ = l.readingLines(requestFor("v3", 3))
	require.Equal(t, []string{"web SUCCEEDED; v3* 2/2"}, lines)

	l.apply(requestFor("v4", 4, renamed("site")))
	l.Advance(10 * time.Minute)
	l.Runtime = l.worker()
	l.remove(requestFor("v4", 5, renamed("site")))
	require.Equal(t, "INACTIVE", *l.web().Status)
	require.Equal(t, "other SUCCEEDED; v1* 2/2", "other "+summary(l.observe(foreign)), "services of others stay")
}

// A worker that may not list services continues, and reports that.
func TestForbiddenListOfServices(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"ListServices"}})
	require.Contains(t, l.apply(requestFor("v1", 1)), "cannot list services with former names: AccessDeniedException")
	var said runtimes.Output
	said, err := l.Runtime.Apply(l.ctx, requestFor("v1", 1))
	require.NoError(t, err)
	require.Empty(t, said.Stdout)
}
