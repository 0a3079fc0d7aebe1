package ecsfake

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// Behaviour defines the behaviour of tasks. With the zero value a task starts, becomes healthy and runs until it is stopped.
type Behaviour struct {
	// PullError stops tasks while PENDING with this reason, such as "CannotPullContainerError: …" (guide task_cannot_pull_image). Use
	// CannotPull for the usual one.
	PullError string
	// ExitCode ends the first container after the given time in RUNNING, where 0 is at once. Such a task does not count as failed (API
	// Deployment, failedTasks; guide service-throttle-logic: "the task already moved to the RUNNING state"), and so trips no breaker;
	// aws/copilot-cli#1879 and aws/containers-roadmap#1206 confirm that.
	ExitCode  *int32
	ExitAfter time.Duration
	// Early ends the container before the task is RUNNING, like a container that another one depends on. Such a task counts as failed.
	Early bool
	// Unhealthy fails the health checks, if the container has one or the service a load balancer. Without any, the failure is not
	// detected, as on AWS.
	Unhealthy bool
	// Unplaceable makes the scheduler find no capacity for a task.
	Unplaceable bool
	// StuckPending leaves tasks PENDING forever.
	StuckPending bool
}

// CannotPull is the behaviour for a missing image, with the message of guide task_cannot_pull_image.
func CannotPull(image string) Behaviour {
	return Behaviour{PullError: "CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref " + image + ": not found"}
}

// Exits is the behaviour of a container that exits with a code after the given time in RUNNING.
func Exits(code int32, after time.Duration) Behaviour {
	return Behaviour{ExitCode: aws.Int32(code), ExitAfter: after}
}

// ExitsEarly is the behaviour of a container that exits before its task is RUNNING.
func ExitsEarly(code int32) Behaviour { return Behaviour{ExitCode: aws.Int32(code), Early: true} }

// Run defines how a one-off task ends.
type Run struct {
	ExitCode int32
	// For is the run time: 0 means Timing.Run, below 0 until it is stopped.
	For time.Duration
	// Log is the output at its start, one event per entry. It is available if the first container has the driver awslogs with a group.
	Log []string
}

// Kind is the kind of a fault.
type Kind int

const (
	// AccessDenied refuses like IAM.
	AccessDenied Kind = iota
	// Throttled refuses like an empty bucket.
	Throttled
	// ServerError is a 500 with ServerException.
	ServerError
	// Unavailable is a 503 without a readable body.
	Unavailable
	// Hang never answers.
	Hang
	// Cut closes the connection before the request has any effect.
	Cut
	// LostAnswer executes the request, and closes the connection without an answer.
	LostAnswer
)

// Fault makes requests fail.
type Fault struct {
	Kind Kind
	// Operations are the affected operations; none means all.
	Operations []string
	// Times is the number of affected requests; 0 means until it is removed.
	Times int
}

type levers struct {
	buckets
	mu      sync.Mutex
	faults  []*Fault
	calls   map[string]int
	refused map[string]int

	// The server's lock guards the following fields, because the simulation reads them.
	behaviours map[string]Behaviour
	runs       map[string]Run
	alarms     map[string]bool
	hooks      map[string]types.DeploymentLifecycleHookStatus
	lag        time.Duration
}

func newLevers(options Options) levers {
	return levers{
		buckets: buckets{rates: Rates(), full: map[Group]*bucket{}, clock: options.LimitClock},
		calls:   map[string]int{}, refused: map[string]int{},
		behaviours: map[string]Behaviour{}, runs: map[string]Run{}, alarms: map[string]bool{}, hooks: map[string]types.DeploymentLifecycleHookStatus{},
	}
}

// Behave sets the behaviour of tasks that start from now on. The key is an image, a family, family:revision, or an ARN of a task
// definition.
func (s *Server) Behave(key string, behaviour Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levers.behaviours[key] = behaviour
}

// Command sets how one-off tasks end. It applies if the command of the first container, joined with spaces, equals this one, or ends
// with it after "--".
func (s *Server) Command(command string, run Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levers.runs[command] = run
}

// Alarm puts a CloudWatch alarm into the state ALARM, or back.
func (s *Server) Alarm(name string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	s.levers.alarms[name] = on
	s.touchAll()
}

// Hook sets the answer of a lifecycle hook's Lambda function from now on; the default is SUCCEEDED.
func (s *Server) Hook(arn string, status types.DeploymentLifecycleHookStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	s.levers.hooks[arn] = status
	s.touchAll()
}

func (s *Server) touchAll() {
	for _, c := range s.clusters {
		for _, v := range c.services {
			s.touch(v)
		}
	}
	s.settle()
}

// Instances sets the number of container instances of a cluster.
func (s *Server) Instances(cluster string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	c := s.clusters[cluster]
	if c == nil {
		return
	}
	c.instances = n
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		s.touch(c.services[name])
	}
	s.settle()
}

// Lag makes reads lag behind later writes by this duration (API RunTask: "eventual consistency"), until it is set to 0.
func (s *Server) Lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levers.lag = d
}

// Limit switches the token buckets on, with full buckets, or off.
func (s *Server) Limit(on bool) { s.levers.reset(on) }

// Break makes requests fail until the caller calls the returned function.
func (s *Server) Break(fault Fault) (mend func()) {
	l := &s.levers
	l.mu.Lock()
	defer l.mu.Unlock()
	added := &fault
	l.faults = append(l.faults, added)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.faults = slices.DeleteFunc(l.faults, func(f *Fault) bool { return f == added })
	}
}

// Calls counts the requests so far by operation, including throttled and broken ones.
func (s *Server) Calls() map[string]int {
	s.levers.mu.Lock()
	defer s.levers.mu.Unlock()
	return maps.Clone(s.levers.calls)
}

// Throttled counts the requests that were answered with ThrottlingException.
func (s *Server) Throttled() map[string]int {
	s.levers.mu.Lock()
	defer s.levers.mu.Unlock()
	return maps.Clone(s.levers.refused)
}

// ResetCalls resets the counters.
func (s *Server) ResetCalls() {
	s.levers.mu.Lock()
	defer s.levers.mu.Unlock()
	clear(s.levers.calls)
	clear(s.levers.refused)
}

func (l *levers) called(operation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[operation]++
}

func (l *levers) refusedBy(operation string, err error) {
	if isThrottled(err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused[operation]++
	}
}

// activeFault returns the first fault of an operation, and counts its use; nil if there is none.
func (l *levers) activeFault(operation string) *activeFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.faults {
		if len(f.Operations) > 0 && !slices.Contains(f.Operations, operation) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				l.faults = slices.Delete(l.faults, i, i+1)
			}
		}
		return &activeFault{f.Kind, operation}
	}
	return nil
}

// activeFault is a fault that applies to one request.
type activeFault struct {
	kind      Kind
	operation string
}

// before reports whether the request ends here, without an answer of the API.
func (f *activeFault) before(w http.ResponseWriter, r *http.Request) bool {
	if f == nil {
		return false
	}
	switch f.kind {
	case Hang:
		<-r.Context().Done()
	case Cut:
		cut(w)
	case Unavailable:
		http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
	default:
		return false
	}
	return true
}

// refusal returns the API's error answer for a request with a fault; nil lets the request pass.
func (f *activeFault) refusal() error {
	if f == nil {
		return nil
	}
	switch f.kind {
	case AccessDenied:
		return refuse("AccessDeniedException", "User: arn:aws:sts::123456789012:assumed-role/converge is not authorized to perform: ecs:%s", f.operation)
	case Throttled:
		return throttled()
	case ServerError:
		return &apiError{code: "ServerException", message: "Service Unavailable. Please try again later.", status: http.StatusInternalServerError}
	}
	return nil
}

// after reports whether the answer is lost.
func (f *activeFault) after(w http.ResponseWriter) bool {
	if f == nil || f.kind != LostAnswer {
		return false
	}
	cut(w)
	return true
}

func cut(w http.ResponseWriter) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return
	}
	if conn, _, err := hijacker.Hijack(); err == nil {
		conn.Close()
	}
}

// behaviour returns the behaviour of tasks of a definition.
func (s *Server) behaviour(d *definition) Behaviour {
	keys := []string{text(d.view.TaskDefinitionArn), d.name(), text(d.view.Family)}
	for _, c := range d.view.ContainerDefinitions {
		keys = append(keys, text(c.Image))
	}
	for _, key := range keys {
		if b, ok := s.levers.behaviours[key]; ok {
			return b
		}
	}
	return Behaviour{}
}

// run returns how a one-off task with this command ends.
func (s *Server) run(command []string) Run {
	joined := strings.Join(command, " ")
	run, known := s.levers.runs[joined]
	if _, within, wrapped := strings.Cut(joined, " -- "); wrapped && !known {
		run = s.levers.runs[within]
	}
	if run.For == 0 {
		run.For = s.options.Timing.Run
	}
	return run
}
