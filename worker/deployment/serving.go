package deployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/workflowservice/v1"
)

// Serving is a version of workers that serves a namespace, or holds workflows there.
type Serving struct {
	Deployment string    `json:"deployment,omitempty"` // empty: workers without versioning
	Build      string    `json:"build,omitempty"`
	Current    bool      `json:"current"`         // new workflows go to it
	Polled     time.Time `json:"polled,omitzero"` // when a worker of it last polled, if the server still knows
	Workflows  int64     `json:"workflows"`       // running workflows that are pinned to it
}

// Serving returns the versions by deployment, the current one of each first. Versions without workers and without workflows are omitted.
func (n Namespace) Serving(ctx context.Context) ([]Serving, error) {
	polled, err := n.Polled(ctx)
	if err != nil {
		return nil, err
	}
	current, err := n.currentVersions(ctx)
	if err != nil {
		return nil, err
	}
	for v := range polled {
		if _, known := current[v]; !known {
			current[v] = v == Version{}
		}
	}
	all := []Serving{}
	for v, isCurrent := range current {
		s := Serving{Deployment: v.DeploymentName, Build: v.BuildID, Current: isCurrent, Polled: polled[v]}
		if s.Deployment != "" {
			count, err := n.Client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: n.Name, Query: pinnedQuery(v)})
			if err != nil {
				return nil, fmt.Errorf("count the workflows of %s: %w", Text(v), err)
			}
			s.Workflows = count.GetCount()
		}
		if s.Current || !s.Polled.IsZero() || s.Workflows > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Serving) int {
		rank := map[bool]int{true: 0, false: 1}
		return cmp.Or(cmp.Compare(a.Deployment, b.Deployment), rank[a.Current]-rank[b.Current], cmp.Compare(a.Build, b.Build))
	})
	return all, nil
}

// currentVersions returns for each version of each deployment whether it is the current one.
func (n Namespace) currentVersions(ctx context.Context) (map[Version]bool, error) {
	names, err := n.Deployments(ctx)
	if err != nil {
		return nil, err
	}
	all := map[Version]bool{}
	for _, name := range names {
		info, _, err := n.Deployment(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, summary := range info.VersionSummaries {
			current := info.RoutingConfig.CurrentVersion
			all[summary.Version] = current != nil && *current == summary.Version
		}
	}
	return all, nil
}
