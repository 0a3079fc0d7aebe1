package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	o := &unstructured.Unstructured{}
	require.NoError(t, o.UnmarshalJSON(raw)) // integers as the server's answers have them
	return o
}

const healthyDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, generation: 2}
spec: {replicas: 2, progressDeadlineSeconds: 600}
status:
  observedGeneration: 2
  replicas: 2
  updatedReplicas: 2
  readyReplicas: 2
  availableReplicas: 2
  conditions:
  - {type: Available, status: "True"}
  - {type: Progressing, status: "True", reason: NewReplicaSetAvailable}
`

func TestHealth(t *testing.T) {
	for _, row := range []struct {
		name, object string
		status       entities.ObjectStatus
		message      string
	}{
		{"a Deployment that is available", healthyDeployment, entities.ObjectSucceeded, "Deployment is available. Replicas: 2"},
		{"an exceeded deadline of an earlier generation does not count", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, generation: 3}
spec: {replicas: 2, progressDeadlineSeconds: 600}
status:
  observedGeneration: 2
  conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: old}]
`, entities.ObjectPending, "Deployment generation is 3, but latest observed generation is 2"},
		{"an exceeded deadline of this generation does", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, generation: 3}
spec: {replicas: 2, progressDeadlineSeconds: 600}
status:
  observedGeneration: 3
  conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: 'ReplicaSet "web-1" has timed out progressing.'}]
`, entities.ObjectFailed, `Progress deadline exceeded: ReplicaSet "web-1" has timed out progressing.`},
		{"a quota is reported in the server's words", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, generation: 1}
spec: {replicas: 2, progressDeadlineSeconds: 600}
status:
  observedGeneration: 1
  conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: exceeded quota}]
`, entities.ObjectPending, "Replicas: 0/2: FailedCreate: exceeded quota"},
		{"a paused rollout has that message", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, generation: 1}
spec: {replicas: 2, paused: true}
status: {observedGeneration: 1, replicas: 2}
`, entities.ObjectPending, "Updated: 0/2; its rollout is paused (spec.paused)"},
		{"an object that is being deleted is pending, regardless of its status", `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, deletionTimestamp: "2026-01-02T03:04:05Z", finalizers: [a/b, c/d]}
`, entities.ObjectPending, "being deleted, held by a/b, c/d since 2026-01-02 03:04:05 UTC"},
		{"a Job that runs is not complete", `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
status: {startTime: "2026-01-02T03:04:05Z", active: 1, failed: 2}
`, entities.ObjectPending, "Job is not complete. Active: 1, succeeded: 0, failed: 2"},
		{"a suspended Job has that message", `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {suspend: true}
`, entities.ObjectPending, "Job is suspended (spec.suspend)"},
		{"a Job that is complete", `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}
`, entities.ObjectSucceeded, "Job is complete. Succeeded: 1"},
		{"a Job that failed", `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
status: {failed: 3, conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded, message: too often}]}
`, entities.ObjectFailed, "Job failed: BackoffLimitExceeded: too often"},
		{"a CronJob succeeds once it exists", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}}", entities.ObjectSucceeded, "Resource is always ready"},
		{"a Pod that failed", "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Failed, message: evicted}}", entities.ObjectFailed, "Pod failed: evicted"},
		{"a Pod that crashes is pending here: its status has no deadline", `
apiVersion: v1
kind: Pod
metadata: {name: a}
status: {phase: Running, containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}]}
`, entities.ObjectPending, "Pod runs and is not ready"},
		{"a kind is served when it is established", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "False", reason: Installing}]}
`, entities.ObjectPending, "Install in progress"},
		{"and not before", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
status: {conditions: [{type: Established, status: "True"}]}
`, entities.ObjectSucceeded, "CRD is established"},
		{"an APIService counts when it answers", `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.example.com}
status: {conditions: [{type: Available, status: "False", reason: MissingEndpoints, message: none}]}
`, entities.ObjectPending, "APIService is not available: MissingEndpoints: none"},
		{"a Ready of an earlier generation does not count", `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a, generation: 3}
status: {conditions: [{type: Ready, status: "True", observedGeneration: 2}]}
`, entities.ObjectPending, "Thing generation is 3, but its Ready condition is of generation 2"},
		{"an unready custom resource has a reason", `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a}
status: {conditions: [{type: Ready, status: "False", reason: Wait, message: for the other}]}
`, entities.ObjectPending, "for the other"},
		{"a custom resource without a status succeeds: it may never get one", `
apiVersion: example.com/v1
kind: Thing
metadata: {name: a}
`, entities.ObjectSucceeded, "Resource is current"},
		{"a load balancer succeeds without an address: not every cluster assigns one", `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, clusterIP: 10.0.0.1}
`, entities.ObjectSucceeded, "Service is ready"},
		{"a claim waits for its volume", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, status: {phase: Pending}}", entities.ObjectPending, "PVC is not Bound. phase: Pending"},
		{"a StatefulSet with OnDelete succeeds: its versions show the old pods", `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {replicas: 2, updateStrategy: {type: OnDelete}}
status: {currentRevision: a, updateRevision: b}
`, entities.ObjectSucceeded, "StatefulSet is using the ondelete update strategy"},
		{"an unreadable status is pending", "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, status: {conditions: bad}}", entities.ObjectPending, "its status cannot be read: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			status, message := health(object(t, row.object))
			require.Equal(t, row.status, status, message)
			require.Contains(t, message, row.message)
		})
	}
}

// The deadline of a rollout that exceeded it restarts at a later apply, even one that does not change it.
func TestTheDeadlineOfARolloutRestartsAtTheLastApply_H1(t *testing.T) {
	stuck := func(applied string) *unstructured.Unstructured {
		return object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, managedFields: [{manager: converge, operation: Apply, time: "`+applied+`"}]},
			status: {conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, lastTransitionTime: "2026-01-02T03:00:00Z"}]}}`)
	}
	at := time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)
	require.False(t, deadlineExceededBefore(stuck("2026-01-02T02:50:00Z"), at.Add(-time.Hour)), "it ran out of time since")
	require.True(t, deadlineExceededBefore(stuck("2026-01-02T03:05:00Z"), at.Add(-time.Second)))
	require.False(t, deadlineExceededBefore(stuck("2026-01-02T03:05:00Z"), at.Add(time.Second)), "and a second time")
}
