package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// The kinds of well-known controllers, as these write their statuses.
func TestHealthOfWellKnownKinds_H3(t *testing.T) {
	const (
		rollout = `apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web, generation: 3}
spec: {strategy: {canary: {steps: [{setWeight: 20}, {pause: {}}, {setWeight: 60}, {pause: {duration: 1h}}, {setWeight: 100}]}}}
`
		canary  = "apiVersion: flagger.app/v1beta1\nkind: Canary\nmetadata: {name: web, generation: 2}\n"
		cert    = "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: web, generation: 2}\n"
		flux    = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: web, generation: 2}\n"
		release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web, generation: 2}\n"
		argo    = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, generation: 40}
spec: {source: {repoURL: "https://git.shop.dev/web", path: deploy, targetRevision: v2}}
`
		compared = "comparedTo: {source: {repoURL: 'https://git.shop.dev/web', path: deploy, targetRevision: v2}}"
	)
	for _, row := range []struct {
		name, object string
		status       entities.ObjectStatus
		suspended    string
		message      string
	}{
		{"a Rollout without a status", rollout, entities.ObjectPending, "", "not seen by its controller"},
		{
			"a Rollout that is healthy, by its generation in a text", rollout + `status: {observedGeneration: "3", phase: Healthy, replicas: 4}`,
			entities.ObjectSucceeded, "", "Rollout is healthy. Replicas: 4",
		},
		{
			"a phase of an earlier spec", rollout + `status: {observedGeneration: "2", phase: Degraded, message: "ProgressDeadlineExceeded: old"}`,
			entities.ObjectPending, "", "Rollout generation is 3, but latest observed generation is 2",
		},
		{
			"a Rollout that ran out of time", rollout + `status: {observedGeneration: "3", phase: Degraded, message: "ProgressDeadlineExceeded: timed out"}`,
			entities.ObjectFailed, "", "Rollout is degraded: ProgressDeadlineExceeded: timed out",
		},
		{
			"a progressing Rollout", rollout + `status: {observedGeneration: "3", phase: Progressing, message: more replicas need to be updated, currentStepIndex: 0}`,
			entities.ObjectPending, "", "Rollout is at step 1 of 5: more replicas",
		},
		{
			"a Rollout that is paused for a person", rollout + `status: {observedGeneration: "3", phase: Paused, controllerPause: true, currentStepIndex: 1,
  pauseConditions: [{reason: CanaryPauseStep, startTime: "2026-01-02T03:04:05Z"}]}`,
			entities.ObjectPending, "CanaryPauseStep at step 2 of 5 since 2026-01-02T03:04:05Z", "paused at step 2 of 5 (CanaryPauseStep)",
		},
		{
			"a Rollout that was just promoted", rollout + `status: {observedGeneration: "3", phase: Paused, controllerPause: true, currentStepIndex: 1}`,
			entities.ObjectPending, "", "Rollout continues",
		},
		{
			"a Rollout that was paused by hand", `{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {paused: true}, status: {phase: Paused}}`,
			entities.ObjectPending, "spec.paused", "paused by hand",
		},
		{
			"a blue-green Rollout before the switch", `{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {strategy: {blueGreen: {}}},
  status: {phase: Paused, controllerPause: true, pauseConditions: [{reason: BlueGreenPause, startTime: "2026-01-02T03:04:05Z"}]}}`,
			entities.ObjectPending, "BlueGreenPause since 2026-01-02T03:04:05Z", "the new ReplicaSet is ready and gets no traffic yet",
		},

		{"a Canary without a status", canary, entities.ObjectPending, "", "not seen by Flagger"},
		{
			"a Canary that failed", canary + `status: {phase: Failed, conditions: [{type: Promoted, status: "False", reason: Failed, message: canary analysis failed}]}`,
			entities.ObjectFailed, "", "Canary failed: canary analysis failed",
		},
		{"a progressing Canary", canary + "status: {phase: Progressing, canaryWeight: 20, failedChecks: 1}", entities.ObjectPending, "", "Canary is Progressing, weight 20, 1 failed checks"},
		{
			"a Canary before its gate", canary + `status: {phase: WaitingPromotion, lastTransitionTime: "2026-01-02T03:04:05Z"}`,
			entities.ObjectPending, "WaitingPromotion since 2026-01-02T03:04:05Z", "open it at the server of its webhook confirm-promotion",
		},
		{"a Canary that is through", canary + "status: {phase: Succeeded}", entities.ObjectSucceeded, "", "Canary is Succeeded"},

		{"a Certificate without a status", cert, entities.ObjectPending, "", "not seen by its controller"},
		{
			"a Certificate that is being renewed is valid", cert + `status: {conditions: [{type: Ready, status: "True", observedGeneration: 2}, {type: Issuing, status: "True"}]}`,
			entities.ObjectSucceeded, "", "Certificate is ready",
		},
		{
			"a Certificate that is issued", cert + `status: {conditions: [{type: Ready, status: "False", reason: DoesNotExist, observedGeneration: 2}, {type: Issuing, status: "True", message: for the first time}]}`,
			entities.ObjectPending, "", "Certificate is being issued: for the first time",
		},
		{
			"a Certificate that was refused", cert + `status: {conditions: [{type: Ready, status: "False", observedGeneration: 2}, {type: Issuing, status: "False", reason: Failed, message: order is invalid, observedGeneration: 2}]}`,
			entities.ObjectFailed, "", "Certificate was not issued: order is invalid",
		},
		{
			"a failure of an earlier spec", cert + `status: {conditions: [{type: Ready, status: "False", reason: Secret, observedGeneration: 2}, {type: Issuing, status: "False", reason: Failed, observedGeneration: 1}]}`,
			entities.ObjectPending, "", "Certificate is not ready: Secret",
		},
		{"an Issuer without a status", "{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: a}}", entities.ObjectPending, "", "not seen by its controller"},
		{"an Issuer that cannot register retries", `{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: a},
  status: {conditions: [{type: Ready, status: "False", reason: ErrRegisterACMEAccount, message: no route}]}}`, entities.ObjectPending, "", "ClusterIssuer is not ready: ErrRegisterACMEAccount: no route"},

		{"a Kustomization without a status", flux, entities.ObjectPending, "", "not seen by its controller"},
		{
			"a Kustomization that is ready", flux + `status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 2}]}`,
			entities.ObjectSucceeded, "", "Kustomization is ready",
		},
		{
			"a Kustomization of an earlier spec", flux + `status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: BuildFailed}]}`,
			entities.ObjectPending, "", "Kustomization generation is 2, but latest observed generation is 1",
		},
		{
			"a Kustomization whose objects are not healthy", flux + `status: {observedGeneration: 2, conditions: [{type: Ready, status: "False", reason: HealthCheckFailed, message: web is not}]}`,
			entities.ObjectFailed, "", "Kustomization failed: HealthCheckFailed: web is not",
		},
		{
			"a Kustomization that waits for another", flux + `status: {observedGeneration: 2, conditions: [{type: Ready, status: "False", reason: DependencyNotReady, message: db}]}`,
			entities.ObjectPending, "", "Kustomization is not ready: DependencyNotReady: db",
		},
		{
			"a Kustomization that is retried", flux + `status: {observedGeneration: 2, conditions: [{type: Reconciling, status: "True"}, {type: Ready, status: "False", reason: BuildFailed}]}`,
			entities.ObjectPending, "", "Kustomization is reconciled: BuildFailed",
		},
		{
			"a Kustomization that is suspended", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: web}, spec: {suspend: true}}",
			entities.ObjectPending, "spec.suspend", "flux resume kustomization web",
		},
		{
			"a HelmRelease that is stalled", release + `status: {observedGeneration: 2, conditions: [{type: Stalled, status: "True", reason: RetriesExceeded, message: 3 times}, {type: Ready, status: "False", reason: UpgradeFailed}]}`,
			entities.ObjectFailed, "", "HelmRelease is stalled: RetriesExceeded: 3 times",
		},
		{
			"a HelmRelease that was rolled back", release + `status: {observedGeneration: 2, conditions: [{type: Remediated, status: "True"}, {type: Ready, status: "False", reason: RollbackSucceeded, message: to 1}]}`,
			entities.ObjectFailed, "", "HelmRelease was rolled back by Flux: RollbackSucceeded: to 1",
		},

		{"an Application without a status", argo, entities.ObjectPending, "", "not seen by Argo CD"},
		{
			"an Application that is healthy at another revision", argo + `status: {health: {status: Healthy}, sync: {status: Synced, comparedTo: {source: {repoURL: "https://git.shop.dev/web", path: deploy, targetRevision: v1}}}}`,
			entities.ObjectPending, "", "compared with other sources",
		},
		{"an Application that is healthy", argo + "status: {health: {status: Healthy}, sync: {status: Synced, " + compared + "}}", entities.ObjectSucceeded, "", "synced and healthy"},
		{"an Application that is degraded", argo + "status: {health: {status: Degraded, message: web crashes}, sync: {status: Synced, " + compared + "}}", entities.ObjectFailed, "", "Application is degraded: web crashes"},
		{"an Application that waits for a person", argo + "status: {health: {status: Suspended}, sync: {status: Synced, " + compared + "}}", entities.ObjectPending, "health Suspended", "waits for a person"},
		{
			"an Application that could not be synced", argo + "status: {health: {status: Healthy}, sync: {status: OutOfSync, revision: abc, " + compared + "}, operationState: {phase: Failed, message: denied, syncResult: {revision: abc}}}",
			entities.ObjectFailed, "", "Application was not synced: denied",
		},
		{
			"a failed sync of another revision", argo + "status: {health: {status: Healthy}, sync: {status: OutOfSync, revision: def, " + compared + "}, operationState: {phase: Failed, syncResult: {revision: abc}}}",
			entities.ObjectPending, "", "Application is OutOfSync and Healthy",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := judge(object(t, row.object))
			require.Equal(t, row.status, v.status, v.message)
			require.Contains(t, v.message, row.message)
			require.Equal(t, row.suspended, v.suspended)
			require.Zero(t, v.until)
		})
	}
}

// A pause with a duration ends automatically: the message asks for no action.
func TestATimedPauseEndsAutomatically_H3(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		pause string
		lasts time.Duration
	}{{"1h", time.Hour}, {`"90"`, 90 * time.Second}, {"30", 30 * time.Second}} {
		v := judge(object(t, `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec: {strategy: {canary: {steps: [{pause: {duration: `+row.pause+`}}]}}}
status: {phase: Paused, controllerPause: true, currentStepIndex: 0, pauseConditions: [{reason: CanaryPauseStep, startTime: "2026-01-02T03:04:05Z"}]}
`))
		require.Equal(t, begun.Add(row.lasts), v.until)
		require.Equal(t, entities.ObjectPending, v.status)
		require.NotEmpty(t, v.suspended)
	}
}

// What steers a Rollout is what kubectl's plugin for it would patch, and a Rollout that has continued since is not changed.
func TestPatchesOfRollouts_H3(t *testing.T) {
	paused := `{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {strategy: {canary: {steps: [{pause: {}}, {pause: {}}]}}},
		status: {phase: Paused, controllerPause: true, currentStepIndex: 0, currentPodHash: b, stableRS: a, pauseConditions: [{reason: CanaryPauseStep, startTime: "2026-01-02T03:04:05Z"}]`
	at := judge(object(t, paused+"}}")).suspended
	for _, row := range []struct {
		name, object string
		steer        runtimes.Steer
		want         []map[string]any
	}{
		{"promote", paused + "}}", runtimes.Steer{At: at}, []map[string]any{{"status": map[string]any{"pauseConditions": nil}}}},
		{"promote fully", paused + "}}", runtimes.Steer{At: at, Full: true}, []map[string]any{{"status": map[string]any{"promoteFull": true}}}},
		{"another pause", paused + "}}", runtimes.Steer{At: "CanaryPauseStep at step 0 of 2"}, nil},
		{
			"an inconclusive analysis", paused + ", canary: {currentStepAnalysisRunStatus: {status: Inconclusive}}}}",
			runtimes.Steer{At: at},
			[]map[string]any{{"status": map[string]any{"pauseConditions": nil, "controllerPause": false, "currentStepIndex": 1}}},
		},
		{"abort", paused + "}}", runtimes.Steer{Abort: true}, []map[string]any{{"status": map[string]any{"abort": true}}}},
		{"aborted before", paused + ", abort: true}}", runtimes.Steer{Abort: true}, nil},
		{"through", "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, status: {phase: Healthy}}", runtimes.Steer{Abort: true}, nil},
		{
			"paused by hand", "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {paused: true}, status: {phase: Paused}}",
			runtimes.Steer{At: "spec.paused"},
			[]map[string]any{{"spec": map[string]any{"paused": false}}},
		},
	} {
		var got []map[string]any
		for _, p := range rolloutPatches(object(t, row.object), row.steer) {
			got = append(got, p.fields)
		}
		require.Equal(t, row.want, got, row.name)
	}
}
