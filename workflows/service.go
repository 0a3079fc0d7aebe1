package workflows

import (
	"strconv"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
	"github.com/converge-engine/converge/entities/view"
)

// Service is the workflow of one service: a convergence loop that ends when the service is removed (A24). No run ends with an apply, an
// extension or a query in flight. Observations and announcements are dropped and started again by the next run.
func Service(ctx workflow.Context, in protocol.ServiceInput) error {
	return newService(ctx, in).run(in.Carried, in.Beginning)
}

func newService(ctx workflow.Context, in protocol.ServiceInput) *service {
	s := &service{
		runs: in.Runs, view: viewed, state: state.New(in.Application, in.Service), decision: &decide.Decision{},
		watches: map[string]*watch{}, applies: map[entities.InstanceID]workflow.CancelFunc{}, extensions: map[string]workflow.CancelFunc{}, checking: map[string]*checking{}, absent: map[string]time.Time{}, justRead: map[entities.Evaluation]entities.CheckReading{}, announcing: map[string]bool{}, steering: map[entities.InstanceID]bool{},
		told: map[entities.InstanceID]told{}, atHand: map[entities.InstanceID]bool{},
	}
	s.shell = &shell{
		ctx: ctx, of: s, name: in.Application + "/" + in.Service, application: in.Application, service: in.Service, title: s.state.Title, enters: s.state.Enters,
		whole: s.state, desk: &s.state.Desk, verbs: verb.Service(),
		stops:   []string{"to delete the service, converge delete " + in.Application + "/" + in.Service, "to stop changes, converge pause " + in.Application + "/" + in.Service},
		answers: map[string]answering{protocol.Release: s.release, protocol.Rollback: s.rollBack, protocol.Reserve: s.reserve, protocol.Conclude: s.conclude},
		messages: map[string]message{
			protocol.Publish:          {take: s.publish, needs: theStore, look: `{}`},
			protocol.SignalScopePause: {take: s.scopePause, needs: theAnnouncer},
			protocol.SignalGranted:    {take: s.granted, needs: theRuntimes},
			protocol.SignalHeld:       {take: s.held},
			messageLease:              {take: s.callRuntime, needs: theRuntimes, own: true},
			messageDue:                {take: s.concludeDue, needs: theStore, own: true},
		},
	}
	return s
}

func (s *service) run(carried protocol.Carried, first protocol.Beginning) error {
	if err := s.answerQueries(); err != nil {
		return err
	}
	return s.live(carried, first)
}

// service is one run of a Service workflow.
type service struct {
	*shell
	runs       int64
	view       func(*state.State, *decide.Decision) shown
	state      *state.State
	decision   *decide.Decision
	watches    map[string]*watch
	told       map[entities.InstanceID]told                  // what workers compare with, by the instance's first name
	atHand     map[entities.InstanceID]bool                  // by the instance's first name: workers receive its changes, and can read it at once
	looked     bool                                          // the first read within a task was tried
	applied    bool                                          // an apply ended since the last turn
	deferred   bool                                          // a moving instance is followed later, or is steady once showing is over
	looks      bool                                          // the first observation started in this turn
	applies    map[entities.InstanceID]workflow.CancelFunc   // running applies that can be cancelled, by the instance's first name
	extensions map[string]workflow.CancelFunc                // the same for extensions, by entities.ExtensionRun
	checking   map[string]*checking                          // by the runtime whose remote worker evaluates; "": any worker
	absent     map[string]time.Time                          // runtimes whose remote worker has taken no checks since then
	justRead   map[entities.Evaluation]entities.CheckReading // by Question: readings that woke this turn
	announcing map[string]bool                               // by notification: an announcement is in flight
	steering   map[entities.InstanceID]bool                  // by the instance's first name: a rollout is being promoted or aborted
	rendering  bool                                          // outside the workflow task
	goneAt     time.Time                                     // when all instances were removed
	shown      shown
	showing    timer // the update of the search attributes waits until then
	crowd      crowd
}

func (s *service) known() bool { return s.state.Spec != nil }

func (s *service) judge(row *verb.Row, r verb.Request, who entities.Who) (state.Effect, error) {
	return row.Do(s.state, s.named(r), who, s.now())
}

func (s *service) follows(row *verb.Row, r verb.Request) string {
	return row.Follows(s.state, s.named(r), s.now())
}

func (s *service) checkNames(r verb.Request) error { return verb.CheckNames(s.state, s.named(r)) }

// named uses the first name of a channel: a caller that watches a runtime knows only that name.
func (s *service) named(r verb.Request) verb.Request {
	if r.Verb == protocol.Refresh && r.Channel != "" {
		r.Channel = s.state.Named(entities.InstanceID{Channel: r.Channel}).Channel
	}
	return r
}

func (s *service) rules() (*entities.Identity, []entities.Grant, bool) {
	if s.state.Spec == nil {
		return nil, nil, true
	}
	return s.state.Spec.Identity, s.state.Spec.Grants, true
}

// restricts reports whether only named people may give this approval, or bypass this condition.
func (s *service) restricts(r verb.Request) bool {
	return s.state.Restricted(r.Topic) || s.state.Spec.GuardsBypass(r.Condition)
}

func (s *service) channels(row *verb.Row, r verb.Request) ([]string, error) {
	r = s.named(r)
	if err := s.state.CheckNames("", r.Channel); err != nil {
		return nil, err
	}
	return row.Concerned(s.state, r), nil
}

// flushAt is high enough that an ordinary release writes no history for audit lines. All lines are written before the workflow ends.
func (s *service) flushAt() int {
	if s.state.Gone() {
		return 1
	}
	return state.FlushAudit
}

func (s *service) next(c protocol.Carried) (string, any) {
	return protocol.ServiceWorkflow, protocol.ServiceInput{
		Application: s.application, Service: s.service, Runs: s.runs + 1, Carried: c,
	}
}

// turn decides and carries out the decision, in this order: questions that the store answers lead to another decision at once; then work
// starts, observations are arranged, and notifications are sent.
func (s *service) turn() {
	s.tellErrors()
	s.lookHere()
	s.readHere()
	s.decision = loop.Settle(s.state, s.now(), s.mode())
	d := s.decision
	s.count(d)
	s.render(d.Renders)
	s.recallAll(d.Recalls)
	for _, op := range d.Applies {
		s.apply(op)
	}
	for _, op := range d.Ends {
		s.end(op)
	}
	for _, op := range d.Asks {
		s.ask(op)
	}
	for _, op := range d.Preflights {
		s.preflight(op)
	}
	for _, op := range d.Extensions {
		s.extend(op)
	}
	for _, op := range d.Removes {
		s.remove(op)
	}
	for _, op := range d.Leases {
		s.lease(op)
	}
	s.steer()
	s.arrangeWatches(len(d.Applies) > 0)
	s.arrangeChecks()
	s.askPlans()
	s.announce()
	s.lookAgain()
	if due := earliest(earliest(d.Wake, s.lastAnnouncementsBy()), s.promisesDue()); !s.wakesBefore(due) {
		s.wakeAt(due, s.dueSummary)
	}
	if s.woken {
		return // the next turn follows at once, and still has the readings that woke this one
	}
	clear(s.justRead)
	if !s.checksHere() { // otherwise there is more to show in a moment
		s.show(len(d.Applies) > 0 || s.deferred || s.looks)
	}
}

// metricDecisions counts decisions, labelled by whether they caused any change or action. Prometheus names it ..._total.
const metricDecisions = "converge_decisions"

// count is not repeated by a replay and writes no history.
func (s *service) count(d *decide.Decision) {
	of := map[string]string{"acted": strconv.FormatBool(d.Acts())}
	workflow.GetMetricsHandler(s.ctx).WithTags(of).Counter(metricDecisions).Inc(1)
}

// mode blocks new releases, never a rollback, when the end of a run is long overdue.
func (s *service) mode() decide.Mode {
	return decide.Mode{Drain: s.drains(), Rollbacks: !s.leaving() && s.ending()}
}

// lastAnnouncements is how long a removed service waits until its last announcements are delivered.
const lastAnnouncements = 10 * time.Minute

// lastAnnouncementsBy is the end of that wait; zero until the service is removed completely.
func (s *service) lastAnnouncementsBy() time.Time {
	if !s.state.Gone() {
		s.goneAt = time.Time{}
		return time.Time{}
	}
	if s.goneAt.IsZero() {
		s.goneAt = s.now()
	}
	if at := s.goneAt.Add(lastAnnouncements); s.now().Before(at) {
		return at
	}
	return time.Time{}
}

// over reports whether the workflow ends (A24): all instances are removed, all notifications are sent, and no message waits that would
// bring the service back.
func (s *service) over() bool {
	if !s.state.Gone() || len(s.state.Announcements) > 0 && !s.lastAnnouncementsBy().IsZero() {
		return false
	}
	s.collect()
	return !s.woken && !s.waits(protocol.Publish) && !s.waits(messageLease)
}

// The rest of this file is what a service displays.

func (s *service) answerQueries() error {
	status := func() (protocol.Status, error) { return view.Of(s.state, s.decision), nil }
	for _, q := range [...]struct {
		name   string
		answer any
	}{
		{protocol.QueryStatus, inParts(&s.large, "the status of "+s.name, status, view.Cut)},
		{protocol.QueryExplain, inParts(&s.large, "the explanation of "+s.name, func() (protocol.Explanation, error) {
			status := view.Of(s.state, s.decision)
			return protocol.Explanation{Lines: explain.Lines(status, "", s.now()), Status: status}, nil
		}, view.CutExplanation)},
		{protocol.QueryState, inParts(&s.large, "the state of "+s.name, s.snapshot, nil)},
		{protocol.QueryPlaced, inParts(&s.large, "the placement of "+s.name, func() (protocol.Placed, error) { return view.Placed(s.state, s.decision), nil }, nil)},
		{protocol.QueryConfigured, func(incarnation int64) (protocol.Configured, error) {
			return view.Configured(s.state, s.decision, incarnation), nil
		}},
		{protocol.QueryDeployed, func(q protocol.DeployedQuestion) (protocol.Deployed, error) {
			return view.Deployed(s.state, s.decision, q), nil
		}},
		{protocol.QueryTerminated, inParts(&s.large, "the terminated instances of "+s.name, func() ([]string, error) { return s.state.Terminated(), nil }, nil)},
	} {
		if err := workflow.SetQueryHandler(s.ctx, q.name, q.answer); err != nil {
			return err
		}
	}
	return nil
}

// snapshot answers the state query. Pending messages are omitted: they may contain tokens.
func (s *service) snapshot() (*state.State, error) {
	out := *s.state
	out.Inbox, out.Requests = nil, nil
	return &out, nil
}
