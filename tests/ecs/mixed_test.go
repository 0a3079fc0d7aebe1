package ecs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
)

// everywhere is one service of which each channel is somewhere else: commands, then ECS, then a cluster.
const everywhere = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-files}]}
- {name: canary, runtimes: [{name: APP-ecs}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
- {name: production, runtimes: [{name: APP-cluster, namespace: NAMESPACE}], preconditions: [{releaseChannelStable: {releaseChannel: canary}}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-files
custom:
  apply: {program: {cmd: [sh, -c, 'echo "$PVN_SERVICE_VERSION" >staging.txt']}}
  fetch:
    fetchMode: STRUCTURED_OUTPUT
    program: {cmd: [sh, -c, 'echo "{\"objects\": [{\"name\": \"web\", \"objectType\": \"file\", \"status\": \"SUCCEEDED\", \"versions\": [{\"version\": \"$(cat staging.txt)\", \"active\": true}]}]}"']}
  pollInterval: 100ms
---
{apiVersion: converge/v1, kind: Runtime, name: APP-ecs, ecs: {cluster: canary, region: us-east-1, endpoint: "URL", pollInterval: 100ms, steadyPollInterval: 1s, retry: {backoff: 100ms, maxBackoff: 1s}}}
---
{apiVersion: converge/v1, kind: Runtime, name: APP-cluster, kubernetes: {kubeconfig: "KUBECONFIG", context: CONTEXT, failAfter: 500ms, pollInterval: 100ms}}
---
apiVersion: converge/v1
kind: Service
name: web
perReleaseChannel:
- releaseChannel: canary
  ecs:
    taskDefinition:
      family: web
      containerDefinitions: [{name: web, image: "shop/web:${{ version }}", memory: 128}]
    service:
      serviceName: web
      desiredCount: 1
      deploymentConfiguration: {deploymentCircuitBreaker: {enable: true, rollback: true}}
- {releaseChannel: production, kubernetes: {manifests: [deployment.yaml]}}
`

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "shop/web:${{ version }}"}]}
`

// A release goes through commands, ECS and Kubernetes by the same rules: what fails on one goes no further, what others run
// stays, and the next one passes all three.
func TestOneServiceOnThreeKindsOfRuntime_A11(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	server := newAWS(t, ecsfake.Options{}, "canary")
	w := &world{shared.World(t), server, server.Client()}
	namespace := cluster.Namespace(t)
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "deployment.yaml"), []byte(deployment), 0o600))
	w.Write(strings.NewReplacer("URL", server.URL, "NAMESPACE", namespace, "KUBECONFIG", cluster.Kubeconfig, "CONTEXT", cluster.Name).Replace(everywhere))
	w.Publish()
	t.Cleanup(func() { w.Retire("web") }) // before the namespace goes

	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, canary CONVERGED v1, production CONVERGED v1")

	w.aws.Behave("shop/web:v2", ecsfake.CannotPull("shop/web:v2"))
	w.Release("web", "v2")
	w.AwaitThat("web", "taken back by ECS", func(s protocol.Status) bool {
		return stage.Channels(s) == "staging CONVERGED v2, canary ROLLED_BACK v1, production BLOCKED v1"
	})
	w.explained("rolled back by ECS")

	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, canary CONVERGED v3, production CONVERGED v3")
	runs, err := cluster.Client.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "shop/web:v3", runs.Spec.Template.Spec.Containers[0].Image)
	file, err := os.ReadFile(filepath.Join(w.Dir, "staging.txt"))
	require.NoError(t, err)
	require.Equal(t, "v3\n", string(file))
}
