package applications_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/charttest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/kubetest/public"
)

// life is an application on a cluster of the test's own.
type life struct {
	*stage.World
	row

	sets    [2]public.Set
	cluster *cluster
}

// Each application is released, upgraded, repaired after an edit by hand, rolled back and deleted. After each of them the cluster has
// exactly what the files declare.
func TestPublicApplications_D8(t *testing.T) {
	own := newCluster(t, kubetest.Own(t)[0])
	own.at(t).make("default", playedJobs)
	short, _ := public.Applications()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && !slices.ContainsFunc(short, func(a public.Application) bool { return a.Name == r.name }) {
				t.Skip("not with -short: make applications test-long runs it")
			}
			l := &life{World: shared.World(t), row: r, sets: r.sets(t), cluster: own.at(t)}
			t.Cleanup(func() { l.Retire(service) })
			l.live()
		})
	}
}

// playedJobs lets the pods of Jobs only be played, as those of Deployments are: their programs are not here.
const playedJobs = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: played-jobs}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: ends, expression: "object.spec.restartPolicy != 'Always'"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {"kubelab/run": "false", "kubelab/exit-code": "0"}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: played-jobs}
spec: {policyName: played-jobs}
`

const service = "public"

func (l *life) live() {
	for i, set := range l.sets {
		l.copyFiles(i, kubetest.PublicSet(l.T, set))
	}
	l.publish(0)
	l.cluster.make(l.namespace, l.objects)
	l.holds(0, l.Await(service, "prod CONVERGED v1"))

	l.publish(1)
	l.holds(1, l.Await(service, "prod CONVERGED v1-i2"))

	l.cluster.edit(l.namespace, l.edited)
	l.cluster.awaitRepair(l.namespace, l.edited)
	l.holds(1, l.Await(service, "prod CONVERGED v1-i2"))

	l.Act(service, protocol.Rollback, `{"by":"test","channel":"prod","reason":"bad"}`)
	l.holds(0, l.Await(service, "prod ROLLED_BACK v1"))

	l.Act(service, protocol.Delete, `{"by":"test","channel":"prod","reason":"over"}`)
	l.AwaitThat(service, "DELETED", func(s protocol.Status) bool { return strings.HasPrefix(stage.Channels(s), "prod DELETED") })
	require.Equal(l.T, l.stay, l.cluster.left(l.App), "left after the deletion")
}

// copyFiles copies a version, its files unchanged, into the directory of the configuration.
func (l *life) copyFiles(version int, from string) {
	l.T.Helper()
	dir := filepath.Join(l.Dir, directory(version))
	if strings.Contains(l.source, "DIR.tgz") {
		require.NoError(l.T, os.WriteFile(dir+".tgz", charttest.Released(l.T, l.name, l.sets[version].Version, os.DirFS(from)), 0o600))
		return
	}
	require.NoError(l.T, os.CopyFS(dir, os.DirFS(from)))
}

func directory(version int) string { return fmt.Sprintf("version%d", version) }

func (l *life) publish(version int) {
	l.T.Helper()
	var options strings.Builder
	for _, option := range l.options {
		options.WriteString("  " + option + "\n")
	}
	l.Write(fmt.Sprintf(`apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: prod, runtimes: [{name: APP-cluster, namespace: %s}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-cluster
kubernetes:
  kubeconfig: %q
  context: %s
  pollInterval: 1s
  health: [{group: apiregistration.k8s.io, kind: APIService, current: "true"}] # no pod serves an API here
---
apiVersion: converge/v1
kind: Service
name: %s
initialVersion: v1
kubernetes:
  %s
%s`, l.namespace, l.cluster.Kubeconfig, l.cluster.Name, service, strings.ReplaceAll(l.source, "DIR", directory(version)), options.String()))
	l.Publish()
}

// holds requires that the cluster has what the files of a version declare, by a reader of our own.
func (l *life) holds(version int, s protocol.Status) {
	l.T.Helper()
	declared := l.declared(version)
	l.cluster.has(l.namespace, declared)
	if i := slices.IndexFunc(s.Channels, func(c protocol.ChannelStatus) bool { return c.Name == "prod" }); i >= 0 {
		require.GreaterOrEqual(l.T, len(s.Channels[i].Objects)+s.Channels[i].Omitted, len(declared), "objects in the status")
	}
}
