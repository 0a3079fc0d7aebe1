package ecsfake

import (
	"errors"
	"sync"
	"time"
)

// Group is a set of operations that share one token bucket per account and region (guide request-throttling).
type Group string

// The groups. Rates are from guide request-throttling. The rates of cluster writes, task reads and tag reads, and the refill of cluster
// reads, were not available there and are set like those of similar groups. The same holds for the groups of some calls about service
// deployments.
const (
	ServiceReads         Group = "service reads"
	ServiceWrites        Group = "service writes"
	TaskDefinitionReads  Group = "task definition reads"
	TaskDefinitionWrites Group = "task definition writes"
	ClusterReads         Group = "cluster reads"
	ClusterWrites        Group = "cluster writes"
	TaskReads            Group = "task reads"
	TaskRuns             Group = "task runs"
	LogReads             Group = "log reads"
	TagReads             Group = "tag reads"
	TagWrites            Group = "tag writes"
)

// Rate is a bucket's size and its refill in tokens per second.
type Rate struct{ Burst, PerSecond float64 }

// Rates returns the documented limits of each group.
func Rates() map[Group]Rate {
	return map[Group]Rate{
		ServiceReads:         {100, 20},
		ServiceWrites:        {50, 5},
		TaskDefinitionReads:  {50, 20},
		TaskDefinitionWrites: {20, 1},
		ClusterReads:         {50, 20},
		ClusterWrites:        {20, 1},
		TaskReads:            {100, 20},
		TaskRuns:             {100, 40},
		LogReads:             {25, 25}, // CloudWatch Logs, service quotas
		TagReads:             {50, 20},
		TagWrites:            {20, 10},
	}
}

// GroupOf returns the group of an operation; empty for one that the fake does not model.
func GroupOf(operation string) Group {
	switch operation {
	case "DescribeServices", "ListServices", "DescribeServiceDeployments", "ListServiceDeployments", "DescribeServiceRevisions":
		return ServiceReads
	case "CreateService", "UpdateService", "DeleteService", "StopServiceDeployment":
		return ServiceWrites
	case "DescribeTaskDefinition", "ListTaskDefinitions", "ListTaskDefinitionFamilies":
		return TaskDefinitionReads
	case "RegisterTaskDefinition", "DeregisterTaskDefinition", "DeleteTaskDefinitions":
		return TaskDefinitionWrites
	case "DescribeClusters", "ListClusters":
		return ClusterReads
	case "CreateCluster", "DeleteCluster":
		return ClusterWrites
	case "DescribeTasks", "ListTasks":
		return TaskReads
	case "RunTask", "StopTask":
		return TaskRuns
	case "GetLogEvents":
		return LogReads
	case "ListTagsForResource":
		return TagReads
	case "TagResource", "UntagResource":
		return TagWrites
	}
	return ""
}

// bucket is one token bucket.
type bucket struct {
	rate   Rate
	tokens float64
	at     time.Time
}

// take takes a token, if one is available at that time.
func (b *bucket) take(now time.Time) bool {
	if gone := now.Sub(b.at).Seconds(); gone > 0 {
		b.tokens = min(b.rate.Burst, b.tokens+gone*b.rate.PerSecond)
		b.at = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// buckets throttle requests while they are switched on.
type buckets struct {
	mu    sync.Mutex
	on    bool
	rates map[Group]Rate
	full  map[Group]*bucket
	clock func() time.Time
}

func (b *buckets) reset(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on, b.full = on, map[Group]*bucket{}
}

// admit takes a token for an operation; now is the fake's clock, unless the buckets have their own clock.
func (b *buckets) admit(operation string, now func() time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on {
		return nil
	}
	if b.clock != nil {
		now = b.clock
	}
	group := GroupOf(operation)
	if b.full[group] == nil {
		rate := b.rates[group]
		b.full[group] = &bucket{rate: rate, tokens: rate.Burst, at: now()}
	}
	if !b.full[group].take(now()) {
		return throttled()
	}
	return nil
}

// throttled returns the answer of guide request-throttling: status 400, not 429.
func throttled() error { return refuse("ThrottlingException", "Rate exceeded") }

func isThrottled(err error) bool {
	var refusal *apiError
	return errors.As(err, &refusal) && refusal.code == "ThrottlingException"
}
