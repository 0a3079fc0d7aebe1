package ecsfake

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	logs "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
)

// Options are the initial settings of the fake. The zero value is an account in us-east-1 at a fixed time.
type Options struct {
	// Region and Account appear in every ARN; by default us-east-1 and 123456789012. Requests signed for another region
	// are refused.
	Region, Account string
	// Start is the first time on the clock; by default 2026-01-05 09:00 UTC.
	Start time.Time
	// Speed makes the clock follow the real clock, multiplied by this factor. At 0 only Advance moves the clock.
	Speed float64
	// Timing sets how long transitions take; a duration of zero means its default.
	Timing Timing
	// Rollback sets how a rollback handles deployments' ids.
	Rollback Rollback
	// Instances is the number of container instances of each new cluster, for tasks on EC2; by default 2. For a cluster without any,
	// use the lever Instances.
	Instances int
	// LimitClock refills the token buckets; by default the fake's own clock. Clients that wait in real time need time.Now.
	LimitClock func() time.Time
}

// Rollback is the behaviour of a rollback. Guide deployment-circuit-breaker says that the last deployment in a COMPLETED state "changes
// from a COMPLETED to IN_PROGRESS", and guide ecs_service_deployment_events that a rollback deployment is "started". Reports confirm
// both.
type Rollback int

const (
	// RollbackPromotes makes the last completed deployment PRIMARY again, with its id.
	RollbackPromotes Rollback = iota
	// RollbackStartsNew starts a new deployment, with its own id, of the configuration of the last completed one.
	RollbackStartsNew
)

// Timing contains the durations on the fake's clock. Only Settled and Restart are documented.
type Timing struct {
	Provision   time.Duration // PROVISIONING, network mode awsvpc only: 10 s
	Pull        time.Duration // PENDING: 10 s
	Health      time.Duration // RUNNING until HEALTHY: 10 s
	Unhealthy   time.Duration // RUNNING until UNHEALTHY and replaced, at least the grace period: 30 s
	Deactivate  time.Duration // DEACTIVATING: 10 s
	Stop        time.Duration // STOPPING: 5 s
	Deprovision time.Duration // DEPROVISIONING: 5 s
	// Settled is how long a task without any health check must run before it counts as healthy: 40 s, according to API
	// DeploymentConfiguration, minimumHealthyPercent.
	Settled time.Duration
	// Restart is the pause after the third failed task in a row. Each further failure doubles it, up to 27 minutes, the maximum in
	// guide service-throttle-logic: 10 s.
	Restart time.Duration
	// AlarmBake is how long alarms are watched after the last old task has ended: 60 s. AWS computes it (guide
	// deployment-alarm-failure).
	AlarmBake time.Duration
	// Run is the default run time of a one-off task: 5 s.
	Run time.Duration
	// Log is the delay until a printed line can be read: 2 s.
	Log time.Duration
	// Purge is how long an INACTIVE service can be described: 1 h.
	Purge time.Duration
}

func (t Timing) orDefaults() Timing {
	for _, d := range []struct {
		field     *time.Duration
		otherwise time.Duration
	}{
		{&t.Provision, 10 * time.Second},
		{&t.Pull, 10 * time.Second},
		{&t.Health, 10 * time.Second},
		{&t.Unhealthy, 30 * time.Second},
		{&t.Deactivate, 10 * time.Second},
		{&t.Stop, 5 * time.Second},
		{&t.Deprovision, 5 * time.Second},
		{&t.Settled, 40 * time.Second},
		{&t.Restart, 10 * time.Second},
		{&t.AlarmBake, time.Minute},
		{&t.Run, 5 * time.Second},
		{&t.Log, 2 * time.Second},
		{&t.Purge, time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.otherwise
		}
	}
	return t
}

// Server is one account in one region. Its methods are safe for concurrent use.
type Server struct {
	// URL is its address, on loopback.
	URL string

	options    Options
	http       *http.Server
	operations map[string]handler
	levers     levers

	// mu guards the following fields: one request at a time reads and changes the state.
	mu        sync.Mutex
	clock     clock
	ids       ids
	clusters  map[string]*cluster
	families  map[string]*family
	logs      map[stream][]logs.OutputLogEvent
	unsettled []*service
}

// New starts a fake. It listens until Close.
func New(options Options) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the ECS API: %w", err)
	}
	s := &Server{
		URL:      "http://" + listener.Addr().String(),
		options:  options.orDefaults(),
		clusters: map[string]*cluster{},
		families: map[string]*family{},
		logs:     map[stream][]logs.OutputLogEvent{},
	}
	s.clock = newClock(s.options.Start, s.options.Speed)
	s.levers = newLevers(s.options)
	s.operations = s.modelled()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.http.Serve(listener) }()
	return s, nil
}

func (o Options) orDefaults() Options {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Account == "" {
		o.Account = "123456789012"
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	}
	if o.Instances == 0 {
		o.Instances = 2
	}
	o.Timing = o.Timing.orDefaults()
	return o
}

// Close closes the listener and every connection, including hanging ones.
func (s *Server) Close() error { return s.http.Close() }

// Client returns a client of the SDK for this server, with dummy keys, after the given changes.
func (s *Server) Client(change ...func(*ecs.Options)) *ecs.Client {
	return ecs.New(ecs.Options{
		Region:       s.options.Region,
		BaseEndpoint: aws.String(s.URL),
		HTTPClient:   HTTPClient(),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIAFAKE", SecretAccessKey: "fake"}, nil
		}),
	}, change...)
}

// Now returns the time on the fake's clock.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	return s.clock.now
}

// Advance moves the clock, and executes all transitions of tasks and deployments that become due.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	s.until(s.clock.now.Add(d))
}

// follow catches up with the real clock if Options.Speed is set.
func (s *Server) follow() {
	if target := s.clock.followed(time.Now()); target.After(s.clock.now) {
		s.until(target)
	}
}

// until executes everything that is due by target, each at its time.
func (s *Server) until(target time.Time) {
	s.settle()
	for {
		next := s.clock.due(target)
		if next == nil {
			break
		}
		s.clock.now = next.at
		next.fire()
		s.settle()
	}
	s.clock.now = target
}

// settle runs the scheduler for the services that changed.
func (s *Server) settle() {
	for len(s.unsettled) > 0 {
		v := s.unsettled[0]
		s.unsettled = s.unsettled[1:]
		v.unsettled = false
		s.schedule(v)
	}
}

// touch queues a service for the scheduler, which runs before the next request reads the service.
func (s *Server) touch(v *service) {
	if !v.unsettled {
		v.unsettled = true
		s.unsettled = append(s.unsettled, v)
	}
}

func (s *Server) after(d time.Duration, fire func()) { s.clock.after(d, fire) }

// modelled lists every operation that the fake knows.
func (s *Server) modelled() map[string]handler {
	return map[string]handler{
		"CreateCluster":              answer(s.createCluster),
		"DeleteCluster":              answer(s.deleteCluster),
		"DescribeClusters":           answer(s.describeClusters),
		"ListClusters":               answer(s.listClusters),
		"RegisterTaskDefinition":     answer(s.registerTaskDefinition),
		"DeregisterTaskDefinition":   answer(s.deregisterTaskDefinition),
		"DeleteTaskDefinitions":      answer(s.deleteTaskDefinitions),
		"DescribeTaskDefinition":     answer(s.describeTaskDefinition),
		"ListTaskDefinitions":        answer(s.listTaskDefinitions),
		"ListTaskDefinitionFamilies": answer(s.listTaskDefinitionFamilies),
		"CreateService":              answer(s.createService),
		"UpdateService":              answer(s.updateService),
		"DeleteService":              answer(s.deleteService),
		"DescribeServices":           answer(s.describeServices),
		"ListServices":               answer(s.listServices),
		"DescribeServiceDeployments": answer(s.describeServiceDeployments),
		"ListServiceDeployments":     answer(s.listServiceDeployments),
		"DescribeServiceRevisions":   answer(s.describeServiceRevisions),
		"StopServiceDeployment":      answer(s.stopServiceDeployment),
		"ContinueServiceDeployment":  answer(s.continueServiceDeployment),
		"RunTask":                    answer(s.runTask),
		"StopTask":                   answer(s.stopTask),
		"DescribeTasks":              answer(s.describeTasks),
		"ListTasks":                  answer(s.listTasks),
		"TagResource":                answer(s.tagResource),
		"UntagResource":              answer(s.untagResource),
		"ListTagsForResource":        answer(s.listTagsForResource),
		"GetLogEvents":               answer(s.getLogEvents),
	}
}
