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

	"github.com/converge-engine/converge/entities"
)

// Accounts are the connections of one worker. All runtimes that name the same account, region or cluster in the same way share them.
// The zero value is ready. Safe for concurrent use.
type Accounts struct {
	// Configure, if set before the first use, changes the SDK's settings of every client: tests set their own HTTP client with it.
	Configure func(*ecs.Options)

	// ConfigureLogs is the same for the clients of CloudWatch Logs.
	ConfigureLogs func(*cloudwatchlogs.Options)

	// Patience, if set before the first use, is how long an apply waits for the rate limit of ECS before it returns an error,
	// instead of 1 min.
	Patience time.Duration

	// Every, if set before the first use, is the interval between readings of a service or a task, instead of 5 s.
	Every time.Duration

	timing   *timing // for tests; nil: the default
	mu       sync.Mutex
	accounts map[entities.ECSRuntime]*account // by definition, without the cluster
	clusters map[entities.ECSRuntime]*cluster
	paces    map[entities.ECSRuntime]*pace
	closed   bool
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

func (a *Accounts) cluster(named entities.ECSRuntime) *cluster {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.clusters[named]; known != nil {
		return known
	}
	if a.clusters == nil {
		a.clusters, a.accounts, a.paces = map[entities.ECSRuntime]*cluster{}, map[entities.ECSRuntime]*account{}, map[entities.ECSRuntime]*pace{}
	}
	timing := defaultTiming()
	if a.timing != nil {
		timing = *a.timing
	}
	if a.Every > 0 {
		timing.watch, timing.fresh, timing.wait = a.Every, a.Every/2, a.Every
	}
	if a.Patience > 0 {
		timing.patience = a.Patience
	}
	made := newCluster(a.account(named), named.Cluster, timing)
	if a.closed {
		made.stop()
	}
	a.clusters[named] = made
	return made
}

// account is one set of credentials in one region; a.mu is held.
func (a *Accounts) account(named entities.ECSRuntime) *account {
	named.Cluster = ""
	if known := a.accounts[named]; known != nil {
		return known
	}
	made := &account{named: named, pace: a.pace(named), configure: a.Configure, configureLogs: a.ConfigureLogs, definitions: map[string]*definition{}}
	a.accounts[named] = made
	return made
}

// pace is shared by all roles of one account, since AWS limits an account and region. The account is that of the role, or the
// worker's own.
func (a *Accounts) pace(named entities.ECSRuntime) *pace {
	place := entities.ECSRuntime{Region: named.Region, Endpoint: named.Endpoint}
	if parts := strings.Split(named.RoleARN, ":"); len(parts) > 4 {
		place.RoleARN = parts[4]
	}
	if known := a.paces[place]; known != nil {
		return known
	}
	made := newPace()
	a.paces[place] = made
	return made
}

var errClosed = errors.New("the connection to ECS is closed: this worker stops")

// account is a connection to ECS with one set of credentials in one region.
type account struct {
	named         entities.ECSRuntime
	pace          *pace
	configure     func(*ecs.Options)
	configureLogs func(*cloudwatchlogs.Options)

	mu          sync.Mutex
	settings    aws.Config
	connected   *ecs.Client
	logs        map[string]*cloudwatchlogs.Client // by region
	definitions map[string]*definition            // by ARN: the content of a revision never changes
}

// client finds credentials and a region at the first call. After an error each call tries again, so a corrected configuration needs
// no restart. It sends nothing.
func (a *account) client(ctx context.Context) (*ecs.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connected != nil {
		return a.connected, nil
	}
	var options []func(*config.LoadOptions) error
	if a.named.Region != "" {
		options = append(options, config.WithRegion(a.named.Region))
	}
	settings, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	if settings.Region == "" {
		return nil, errors.New("no region is named: neither by the runtime nor by the worker's environment")
	}
	if a.named.RoleARN != "" {
		settings.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(settings), a.named.RoleARN, a.assumes))
	}
	a.settings, a.connected = settings, ecs.NewFromConfig(settings, a.configured)
	return a.connected, nil
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

func (a *account) assumes(o *stscreds.AssumeRoleOptions) {
	o.RoleSessionName = "converge"
	if a.named.ExternalID != "" {
		o.ExternalID = &a.named.ExternalID
	}
}

// configured disables the retries of the SDK: after a lost answer it would register a definition twice (call decides about retries).
func (a *account) configured(o *ecs.Options) {
	o.Retryer = aws.NopRetryer{}
	if a.named.Endpoint != "" {
		o.BaseEndpoint = &a.named.Endpoint
	}
	if a.configure != nil {
		a.configure(o)
	}
}
