package ecs

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// rollback is the result of a reading of a service's service deployments, for one state of the service.
type rollback struct {
	stamp, hash string
	reason      string
	definition  string // of this definition
}

// deploymentsRead limits the newest service deployments that are read, and the revisions in one call.
const deploymentsRead = 20

// rolledBack is the reason for the rollback of the newest deployment of the declaration, and its revision; empty if it was not
// rolled back, or does not exist. ECS keeps this for 90 days, so Converge does not store it. The request is made only for services
// that do not run their target, and only after a change of them.
func (c *cluster) rolledBack(ctx context.Context, s *types.Service, owner runtimes.Owner, d *declared) (rollback, error) {
	stamp := stateOf(s)
	c.mu.Lock()
	known := c.entry(text(s.ServiceName)).rollback
	c.mu.Unlock()
	if known.stamp == stamp && known.hash == d.hash {
		return known, nil
	}
	found, err := c.readRollback(ctx, s, owner, d)
	if err != nil {
		return found, err
	}
	found.stamp, found.hash = stamp, d.hash
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry(text(s.ServiceName)).rollback = found
	return found, nil
}

func (c *cluster) readRollback(ctx context.Context, s *types.Service, owner runtimes.Owner, d *declared) (found rollback, err error) {
	client, err := c.account.client(ctx)
	if err != nil {
		return found, err
	}
	most := int32(deploymentsRead)
	list, err := call(ctx, c, serviceReads, client.ListServiceDeployments, &ecs.ListServiceDeploymentsInput{
		Cluster: &c.name, Service: s.ServiceArn, MaxResults: &most,
	})
	if err != nil || len(list.ServiceDeployments) == 0 {
		return found, err
	}
	var arns []string
	for _, one := range list.ServiceDeployments {
		arns = append(arns, text(one.TargetServiceRevisionArn))
	}
	out, err := call(ctx, c, serviceReads, client.DescribeServiceRevisions, &ecs.DescribeServiceRevisionsInput{ServiceRevisionArns: distinct(arns)})
	if err != nil {
		return found, err
	}
	runs := map[string]string{} // task definition by revision of the service
	for _, r := range out.ServiceRevisions {
		runs[text(r.ServiceRevisionArn)] = text(r.TaskDefinition)
	}
	for _, one := range list.ServiceDeployments { // the newest first
		known, err := c.describeRevision(ctx, runs[text(one.TargetServiceRevisionArn)])
		if err != nil {
			return found, err
		}
		if known.matches(owner, d) {
			return rollback{reason: rollbackReasonOf(one), definition: known.arn}, nil
		}
	}
	return found, nil
}

// rollbackReasonOf is the reason for the rollback of a service deployment. A STOPPED one was replaced by another: the service was
// changed in the meantime, and an apply corrects that.
func rollbackReasonOf(d types.ServiceDeploymentBrief) string {
	if !strings.HasPrefix(string(d.Status), "ROLLBACK_") {
		return ""
	}
	reason := "rolled back by ECS"
	if d.StatusReason != nil {
		reason += ": " + *d.StatusReason
	}
	return reason
}

func distinct(all []string) (unique []string) {
	seen := map[string]bool{"": true}
	for _, one := range all {
		if !seen[one] {
			seen[one] = true
			unique = append(unique, one)
		}
	}
	return unique
}
