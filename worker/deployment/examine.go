package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Finding is one thing that is wrong, or that somebody did and may have forgotten. The codes never change.
type Finding struct {
	Code string `json:"code"`
	What string `json:"what"` // a workflow, a version or a queue
	Why  string `json:"why"`
	Next string `json:"next"` // what to do about it
}

// The codes of findings.
const (
	NoWorkers             = "no-workers"              // nobody serves the task queue
	NoCurrentVersion      = "no-current-version"      // workers of a deployment serve, and no version of it is current
	VersionWithoutWorkers = "version-without-workers" // workflows are pinned to a version that nobody serves
	PinnedByOperator      = "pinned-by-operator"      // somebody pinned a workflow to a version, for good
	FailingWorkflow       = "failing-workflow"        // a workflow's task fails again and again: no worker can take it
)

// Report is what was looked at, in so many words, and what was found, in order.
type Report struct {
	Looked   []string  `json:"looked"`
	Findings []Finding `json:"findings"`
}

func (r *Report) looked(format string, args ...any) {
	r.Looked = append(r.Looked, fmt.Sprintf(format, args...))
}

func (r *Report) found(code, what, why, next string) {
	r.Findings = append(r.Findings, Finding{code, what, why, next})
}

// Examine looks at the workers of a namespace, their versions, and the workflows that those hold.
func (n Namespace) Examine(ctx context.Context) (Report, error) {
	r := Report{Findings: []Finding{}}
	polled, err := n.Polled(ctx)
	if err != nil {
		return r, err
	}
	serving := 0
	for _, at := range polled {
		if time.Since(at) < n.pollLasts() {
			serving++
		}
	}
	r.looked("who serves the task queue: workers of %d versions", serving)
	if serving == 0 {
		r.found(NoWorkers, "namespace "+n.Name, "nobody has asked for work for "+n.pollLasts().String(), "start one: converge worker")
	}
	names, err := n.Deployments(ctx)
	if err != nil {
		return r, fmt.Errorf("list worker deployments: %w", err)
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if err := n.examineDeployment(ctx, name, polled, &r); err != nil {
			return r, err
		}
	}
	return r, n.examineFailing(ctx, &r)
}

func (n Namespace) examineDeployment(ctx context.Context, name string, polled map[Version]time.Time, r *Report) error {
	info, there, err := n.Deployment(ctx, name)
	if err != nil || !there {
		return err
	}
	current := info.RoutingConfig.CurrentVersion
	for _, summary := range info.VersionSummaries {
		v := summary.Version
		served := time.Since(polled[v]) < n.pollLasts()
		if current == nil && served {
			r.found(NoCurrentVersion, Text(v), "its workers get no new workflows", setCurrentCommand(v))
		}
		if current != nil && v == *current && served {
			continue
		}
		if err := n.examinePinned(ctx, v, served, r); err != nil {
			return err
		}
	}
	return nil
}

func setCurrentCommand(v Version) string {
	return fmt.Sprintf("temporal worker deployment set-current-version --deployment-name %s --build-id %s", v.DeploymentName, v.BuildID)
}

// examinePinned looks at the workflows of a version that is not the current one, or that nobody serves.
func (n Namespace) examinePinned(ctx context.Context, v Version, served bool, r *Report) error {
	pinned := 0
	for e, err := range n.Pinned(ctx, v) {
		if err != nil {
			return err
		}
		pinned++
		info, err := n.versioning(ctx, e)
		if err != nil {
			return err
		}
		if to := OverriddenTo(info); to != (Version{}) {
			r.found(PinnedByOperator, e.Execution.WorkflowId, "pinned to "+Text(to)+", whatever becomes current",
				"temporal workflow update-options --workflow-id "+e.Execution.WorkflowId+" --versioning-override-behavior unspecified")
		}
	}
	r.looked("%s: %d workflows", Text(v), pinned)
	if pinned > 0 && !served {
		r.found(VersionWithoutWorkers, Text(v), fmt.Sprintf("%d workflows are pinned to it and nobody serves it", pinned),
			"start its workers, or those of another version with --set-current, which take over within two minutes what nobody pinned")
	}
	return nil
}

// mostFailing bounds how many workflows are named.
const mostFailing = 20

func (n Namespace) examineFailing(ctx context.Context, r *Report) error {
	failing := 0
	for e, err := range n.list(ctx, ours+" AND TemporalReportedProblems IS NOT NULL") {
		if err != nil {
			return err
		}
		if failing++; failing <= mostFailing {
			r.found(FailingWorkflow, e.Execution.WorkflowId, "its workflow task fails again and again", "read the worker's log; it goes on where it was once a worker can take it")
		}
	}
	r.looked("workflows that fail again and again: %d", failing)
	return nil
}
