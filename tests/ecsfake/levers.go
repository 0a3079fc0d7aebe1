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

// Behaviour is what tasks do; the zero value starts, becomes healthy and runs until it is stopped.
type Behaviour struct {
	// PullError stops tasks while PENDING with this reason, such as "CannotPullContainerError: …" (guide
	// task_cannot_pull_image). Write CannotPull for the usual one.
	PullError string
	// ExitCode ends the first container so long after the task was RUNNING, where 0 is at once. Such a task does not
	// count as failed (API Deployment, failedTasks; guide service-throttle-logic: "the task already moved to the RUNNING
	// state"), and so trips no breaker; aws/copilot-cli#1879 and aws/containers-roadmap#1206 saw that.
	ExitCode  *int32
	ExitAfter time.Duration
	// Early has it end before the task is RUNNING, as a container does on which another depends: that counts.
	Early bool
	// Unhealthy fails the health checks, where the container has one or the service a load balancer. Without any nobody
	// sees it, as on AWS.
	Unhealthy bool
	// Unplaceable has the scheduler find no room for a task.
	Unplaceable bool
	// StuckPending leaves tasks PENDING for good.
	StuckPending bool
}

// CannotPull is an image that is not there, in the words of guide task_cannot_pull_image.
func CannotPull(image string) Behaviour {
	return Behaviour{PullError: "CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref " + image + ": not found"}
}

// Exits is a container that ends with a code so long after its task was RUNNING.
func Exits(code int32, after time.Duration) Behaviour {
	return Behaviour{ExitCode: aws.Int32(code), ExitAfter: after}
}

// ExitsEarly is one that ends before its task is RUNNING.
func ExitsEarly(code int32) Behaviour { return Behaviour{ExitCode: aws.Int32(code), Early: true} }

// Run is how a one-off task ends.
type Run struct {
	ExitCode int32
	// For is how long it runs: 0 means Timing.Run, below 0 until it is stopped.
	For time.Duration
	// Log is what it prints when it starts, an event each, where its first container has the driver awslogs with a group.
	Log []string
}

// Kind is what goes wrong with a request.
type Kind int

const (
	// AccessDenied refuses as IAM does.
	AccessDenied Kind = iota
	// Throttled refuses as an empty bucket does.
	Throttled
	// ServerError is a 500 with ServerException.
	ServerError
	// Unavailable is a 503 without a body that could be read.
	Unavailable
	// Hang never answers.
	Hang
	// Cut closes the connection before anything happened.
	Cut
	// LostAnswer does what was asked and closes the connection instead of saying so.
	LostAnswer
)

// Fault is something that goes wrong with requests.
type Fault struct {
	Kind Kind
	// Operations are those it befalls; none means all.
	Operations []string
	// Times is how often; 0 means until it is removed.
	Times int
}

type levers struct {
	buckets
	mu      sync.Mutex
	faults  []*Fault
	calls   map[string]int
	refused map[string]int

	// The rest is guarded by the server's lock, for it is the world that looks at it.
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

// Behave says what tasks do that start from now on. The key is an image, a family, family:revision, or an ARN of a task
// definition.
func (s *Server) Behave(key string, behaviour Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levers.behaviours[key] = behaviour
}

// Command says how one-off tasks end whose first container's command, joined with spaces, is this, or ends so behind "--".
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

// Hook says how the Lambda function of a lifecycle hook answers from now on; SUCCEEDED is what it does without this.
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

// Instances sets how many container instances a cluster has.
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

// Lag makes reads lag behind the writes that follow by so long (API RunTask: "eventual consistency"), until it is set to 0.
func (s *Server) Lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.levers.lag = d
}

// Limit switches the token buckets on, full, or off.
func (s *Server) Limit(on bool) { s.levers.reset(on) }

// Break lets requests fail; calling what it returns mends that.
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

// Calls counts the requests so far by operation, those included that were throttled or broken.
func (s *Server) Calls() map[string]int {
	s.levers.mu.Lock()
	defer s.levers.mu.Unlock()
	return maps.Clone(s.levers.calls)
}

// Throttled counts those of them that were answered with ThrottlingException.
func (s *Server) Throttled() map[string]int {
	s.levers.mu.Lock()
	defer s.levers.mu.Unlock()
	return maps.Clone(s.levers.refused)
}

// ResetCalls begins to count anew.
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

// trouble takes the first fault that befalls an operation; nil is none.
func (l *levers) trouble(operation string) *trouble {
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
		return &trouble{f.Kind, operation}
	}
	return nil
}

// trouble is a fault on its way through one request.
type trouble struct {
	kind      Kind
	operation string
}

// before is true when the request ends here, without an answer of the API.
func (t *trouble) before(w http.ResponseWriter, r *http.Request) bool {
	if t == nil {
		return false
	}
	switch t.kind {
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

// refusal is what the API answers to a request in trouble; nil lets it pass.
func (t *trouble) refusal() error {
	if t == nil {
		return nil
	}
	switch t.kind {
	case AccessDenied:
		return refuse("AccessDeniedException", "User: arn:aws:sts::123456789012:assumed-role/converge is not authorized to perform: ecs:%s", t.operation)
	case Throttled:
		return throttled()
	case ServerError:
		return &apiError{code: "ServerException", message: "Service Unavailable. Please try again later.", status: http.StatusInternalServerError}
	}
	return nil
}

// after is true when the answer is lost.
func (t *trouble) after(w http.ResponseWriter) bool {
	if t == nil || t.kind != LostAnswer {
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

// behaviour is what tasks of a definition do.
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

// run is how a one-off task with such a command ends.
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
