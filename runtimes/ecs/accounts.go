package ecs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"

	"github.com/converge-engine/converge/entities"
)

// Accounts are the connections of one worker. All runtimes that name the same account, region or cluster in the same way share them.
// The zero value is ready. Safe for concurrent use.
type Accounts struct {
	// Configure, if set before the first use, changes the SDK's settings of every client: tests set their own HTTP client with it.
	Configure func(*ecs.Options)

	// ConfigureLogs is the same for the clients of CloudWatch Logs.
	ConfigureLogs func(*cloudwatchlogs.Options)

	// ThrottleTimeout, if set before the first use, is how long an apply waits for the rate limit of ECS before it returns an error,
	// instead of 1 min.
	ThrottleTimeout time.Duration

	// PollInterval, if set before the first use, is the interval between readings of a service or a task, instead of 5 s.
	PollInterval time.Duration

	timing   *timing // for tests; nil: the default
	mu       sync.Mutex
	accounts map[place]*account // without the cluster
	clusters map[place]*cluster
	limiters map[entities.ECSRuntime]*rateLimiter
	closed   bool
}

// place is where requests are sent, and whether any may write.
type place struct {
	entities.ECSRuntime
	readOnly bool
}

// Close ends all readings. Later requests are refused.
func (a *Accounts) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, c := range a.clusters {
		c.stop()
	}
}

func (a *Accounts) cluster(def entities.RuntimeDefinition) *cluster {
	at := place{*def.ECS, def.ReadOnly}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.clusters[at]; known != nil {
		return known
	}
	if a.clusters == nil {
		a.clusters, a.accounts, a.limiters = map[place]*cluster{}, map[place]*account{}, map[entities.ECSRuntime]*rateLimiter{}
	}
	timing := defaultTiming()
	if a.timing != nil {
		timing = *a.timing
	}
	if a.PollInterval > 0 {
		timing.pollInterval, timing.maxAge, timing.drainPollInterval = a.PollInterval, a.PollInterval/2, a.PollInterval
	}
	if a.ThrottleTimeout > 0 {
		timing.throttleTimeout = a.ThrottleTimeout
	}
	made := newCluster(a.account(at), at.Cluster, timing)
	if a.closed {
		made.stop()
	}
	a.clusters[at] = made
	return made
}

// account is one set of credentials in one region; a.mu is held.
func (a *Accounts) account(at place) *account {
	at.Cluster = ""
	if known := a.accounts[at]; known != nil {
		return known
	}
	made := &account{def: at.ECSRuntime, readOnly: at.readOnly, limiter: a.limiter(at.ECSRuntime), configure: a.Configure, configureLogs: a.ConfigureLogs, definitions: map[string]*definition{}}
	a.accounts[at] = made
	return made
}

// limiter is shared by all roles of one account, since AWS limits an account and region. The account is that of the role, or the
// worker's own.
func (a *Accounts) limiter(def entities.ECSRuntime) *rateLimiter {
	key := entities.ECSRuntime{Region: def.Region, Endpoint: def.Endpoint}
	if parts := strings.Split(def.RoleARN, ":"); len(parts) > 4 {
		key.RoleARN = parts[4]
	}
	if known := a.limiters[key]; known != nil {
		return known
	}
	made := newRateLimiter()
	a.limiters[key] = made
	return made
}

var errClosed = errors.New("the connection to ECS is closed: this worker stops")

// account is a connection to ECS with one set of credentials in one region.
type account struct {
	def           entities.ECSRuntime
	readOnly      bool // a call that writes is refused
	limiter       *rateLimiter
	configure     func(*ecs.Options)
	configureLogs func(*cloudwatchlogs.Options)

	mu          sync.Mutex
	settings    aws.Config
	ecsClient   *ecs.Client
	logs        map[string]*cloudwatchlogs.Client // by region
	definitions map[string]*definition            // by ARN: the content of a revision never changes
}

// client finds credentials and a region at the first call. After an error each call tries again, so a corrected configuration needs
// no restart. It sends nothing.
func (a *account) client(ctx context.Context) (*ecs.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ecsClient != nil {
		return a.ecsClient, nil
	}
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})} // errors are returned
	if a.def.Region != "" {
		options = append(options, config.WithRegion(a.def.Region))
	}
	settings, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	if settings.Region == "" {
		return nil, errors.New("no region is named: neither by the runtime nor by the worker's environment")
	}
	if a.def.RoleARN != "" {
		settings.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(settings), a.def.RoleARN, a.assumeRoleOptions))
	}
	a.settings, a.ecsClient = settings, ecs.NewFromConfig(settings, a.clientOptions)
	return a.ecsClient, nil
}

// logsClient is a client for CloudWatch Logs, with the same credentials, in the region of a log; empty: the account's.
func (a *account) logsClient(ctx context.Context, region string) (*cloudwatchlogs.Client, error) {
	if _, err := a.client(ctx); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.logs[region]; known != nil {
		return known, nil
	}
	if a.logs == nil {
		a.logs = map[string]*cloudwatchlogs.Client{}
	}
	a.logs[region] = cloudwatchlogs.NewFromConfig(a.settings, func(o *cloudwatchlogs.Options) {
		o.Retryer = aws.NopRetryer{}
		if region != "" {
			o.Region = region
		}
		if a.configureLogs != nil {
			a.configureLogs(o)
		}
	})
	return a.logs[region], nil
}

func (a *account) assumeRoleOptions(o *stscreds.AssumeRoleOptions) {
	o.RoleSessionName = "converge"
	if a.def.ExternalID != "" {
		o.ExternalID = &a.def.ExternalID
	}
}

// clientOptions disables the retries of the SDK: after a lost answer it would register a definition twice (call decides about
// retries).
func (a *account) clientOptions(o *ecs.Options) {
	o.Retryer = aws.NopRetryer{}
	if a.def.Endpoint != "" {
		o.BaseEndpoint = &a.def.Endpoint
	}
	if a.configure != nil {
		a.configure(o)
	}
}
