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
	return newService(ctx, in).run(in.CarriedState, in.StartMode)
}

func newService(ctx workflow.Context, in protocol.ServiceInput) *service {
	s := &service{
		runs: in.Runs, view: uiStateOf, state: state.New(in.Application, in.Service), decision: &decide.Decision{},
		observations: map[string]*observation{}, applies: map[entities.InstanceID]workflow.CancelFunc{}, extensions: map[string]workflow.CancelFunc{}, checkRuns: map[string]*checkRun{}, noWorkerSince: map[string]time.Time{}, freshReadings: map[entities.Evaluation]entities.CheckReading{}, webhooksInFlight: map[string]*sending{}, steering: map[entities.InstanceID]bool{},
		lastReported: map[entities.InstanceID]reported{}, servedFromWatchCache: map[entities.InstanceID]bool{},
	}
	s.shell = &shell{
		ctx: ctx, entity: s, name: in.Application + "/" + in.Service, application: in.Application, service: in.Service, title: s.state.Title, incarnationsOf: s.state.EntryIncarnations, commandsFor: s.commandsFor,
		fullState: s.state, mailbox: &s.state.Mailbox, verbs: verb.Service(),
		cancelAlternatives: []string{"to delete the service, converge channel delete " + in.Application + "/" + in.Service, "to stop changes, converge pause " + in.Application + "/" + in.Service},
		answerHandlers:     map[string]answerHandler{protocol.Release: s.release, protocol.Rollback: s.rollBack, protocol.Reserve: s.reserve, protocol.Conclude: s.conclude},
		messages: map[string]message{
			protocol.Publish:          {handle: s.publish, dependency: depStore, coalesced: newestNotice},
			protocol.SignalScopePause: {handle: s.receivePause, dependency: depPauseOwner},
			protocol.SignalGranted:    {handle: s.acceptLease, dependency: depRuntimes},
			protocol.SignalHeld:       {handle: s.answerHeld},
			messageLease:              {handle: s.callRuntime, dependency: depRuntimes, internal: true},
			messageDue:                {handle: s.concludeDue, dependency: depStore, internal: true},
		},
	}
	return s
}

func (s *service) run(carried protocol.CarriedState, first protocol.StartMode) error {
	if err := s.answerQueries(); err != nil {
		return err
	}
	return s.runLoop(carried, first)
}

// service is one run of a Service workflow.
type service struct {
	*shell
	runs                      int64
	view                      func(*state.State, *decide.Decision) uiState
	state                     *state.State
	decision                  *decide.Decision
	observations              map[string]*observation
	lastReported              map[entities.InstanceID]reported              // what workers compare with, by the instance's first name
	servedFromWatchCache      map[entities.InstanceID]bool                  // by the first name: workers can read it at once
	initialReadTried          bool                                          // the first read within a task was tried
	applyJustEnded            bool                                          // an apply ended since the last reconciliation
	deferred                  bool                                          // an observation starts when the attributes are updated
	initialObservationStarted bool                                          // the first observation started in this reconciliation
	applies                   map[entities.InstanceID]workflow.CancelFunc   // running ones that can be cancelled, by the first name
	extensions                map[string]workflow.CancelFunc                // the same for extensions, by entities.ExtensionRun
	checkRuns                 map[string]*checkRun                          // by the runtime whose remote worker evaluates; "": any worker
	noWorkerSince             map[string]time.Time                          // runtimes whose remote worker has taken no checks since then
	freshReadings             map[entities.Evaluation]entities.CheckReading // by Question: readings that caused this reconciliation
	webhooksInFlight          map[string]*sending                           // by notification: an announcement is in flight
	steering                  map[entities.InstanceID]bool                  // by the first name: a rollout is being promoted or aborted
	rendering                 bool                                          // outside the workflow task
	removedAt                 time.Time                                     // when all instances were removed
	shownUI                   uiState
	attributesTimer           timer // the update of the search attributes waits until then
	releaseLoad               releaseLoad
}

func (s *service) initialized() bool { return s.state.Spec != nil }

func (s *service) judge(row *verb.Row, r verb.Request, who entities.Who) (state.Effect, error) {
	return row.Do(s.state, s.resolveChannel(r), who, s.now())
}

func (s *service) followUp(row *verb.Row, r verb.Request) []string {
	return row.Consequences(s.state, s.resolveChannel(r), s.now())
}

func (s *service) checkNames(r verb.Request) error {
	return verb.CheckNames(s.state, s.resolveChannel(r))
}

// resolveChannel uses the first name of a channel: a caller that watches a runtime knows only that name.
func (s *service) resolveChannel(r verb.Request) verb.Request {
	if r.Verb == protocol.Refresh && r.Channel != "" {
		r.Channel = s.state.IDByKey(entities.InstanceID{Channel: r.Channel}).Channel
	}
	return r
}

func (s *service) rules() (*entities.Identity, []entities.Grant, bool) {
	if s.state.Spec == nil {
		return nil, nil, true
	}
	return s.state.Spec.Identity, s.state.Spec.Grants, true
}

// isRestricted reports whether only named people may give this approval, or bypass this condition.
func (s *service) isRestricted(r verb.Request) bool {
	return s.state.RestrictsApprovers(r.Topic) || s.state.Spec.RestrictsBypass(r.Condition)
}

func (s *service) channels(row *verb.Row, r verb.Request) ([]string, error) {
	r = s.resolveChannel(r)
	if err := s.state.CheckNames("", r.Channel); err != nil {
		return nil, err
	}
	return row.AffectedChannels(s.state, r), nil
}

// auditBufferSize is high enough that an ordinary release writes no history for audit lines. All lines are written before the workflow
// ends.
func (s *service) auditBufferSize() int {
	if s.state.FullyRemoved() {
		return 1
	}
	return state.AuditFlushSize
}

func (s *service) nextRun(c protocol.CarriedState) (string, any) {
	return protocol.ServiceWorkflow, protocol.ServiceInput{
		Application: s.application, Service: s.service, Runs: s.runs + 1, CarriedState: c,
	}
}

// reconcile decides and carries out the decision, in this order: questions that the store answers lead to another decision at once; then
// work starts, observations are arranged, and notifications are sent.
func (s *service) reconcile() {
	s.notifyCheckErrors()
	s.readInitialStateLocally()
	s.readHintedLocally()
	s.decision = loop.Settle(s.state, s.now(), s.mode())
	d := s.decision
	s.countDecision(d)
	s.render(d.Renders)
	s.loadAllPayloads(d.Recalls)
	for _, op := range d.Applies {
		s.apply(op)
	}
	for _, op := range d.Ends {
		s.cancelOp(op)
	}
	for _, op := range d.Queries {
		s.queryVersion(op)
	}
	for _, op := range d.Preflights {
		s.preflight(op)
	}
	for _, op := range d.Extensions {
		s.runExtension(op)
	}
	for _, op := range d.Removes {
		s.remove(op)
	}
	for _, op := range d.Leases {
		s.requestLease(op)
	}
	s.steer()
	s.arrangeObservations(len(d.Applies) > 0)
	s.arrangeChecks()
	s.queryPlans()
	s.sendNotifications()
	s.resumeAwaiting()
	if due := earliest(earliest(d.Wake, s.finalNotificationsDeadline()), s.promisesDue()); !s.wakesBefore(due) {
		s.wakeAt(due, s.dueSummary)
	}
	if s.woken {
		return // the next reconciliation follows at once, and still has the readings that caused this one
	}
	clear(s.freshReadings)
	if !s.evaluatesLocally() { // otherwise there is more to show in a moment
		s.show(len(d.Applies) > 0 || s.deferred || s.initialObservationStarted)
	}
}

// metricDecisions counts decisions, labelled by whether they caused any change or action. Prometheus names it ..._total.
const metricDecisions = "converge_decisions"

// countDecision is not repeated by a replay and writes no history.
func (s *service) countDecision(d *decide.Decision) {
	of := map[string]string{"acted": strconv.FormatBool(d.HasEffects())}
	workflow.GetMetricsHandler(s.ctx).WithTags(of).Counter(metricDecisions).Inc(1)
}

// mode blocks new releases, never a rollback, when the end of a run is long overdue, and while a publication that arrived is not read: its
// rules may be stricter (G2).
func (s *service) mode() decide.Mode {
	return decide.Mode{NoNewWork: s.blocksNewWork(), Rollbacks: !s.readyToEnd() && s.endSuggested(), UnreadRules: s.isQueued(protocol.Publish)}
}

// finalNotificationsWait is how long a removed service waits until its last announcements are delivered.
const finalNotificationsWait = 10 * time.Minute

// finalNotificationsDeadline is the end of that wait; zero until the service is removed completely.
func (s *service) finalNotificationsDeadline() time.Time {
	if !s.state.FullyRemoved() {
		s.removedAt = time.Time{}
		return time.Time{}
	}
	if s.removedAt.IsZero() {
		s.removedAt = s.now()
	}
	if at := s.removedAt.Add(finalNotificationsWait); s.now().Before(at) {
		return at
	}
	return time.Time{}
}

// finished reports whether the workflow ends (A24): all instances are removed, all notifications are sent, and no message waits that would
// bring the service back.
func (s *service) finished() bool {
	if !s.state.FullyRemoved() || len(s.state.Announcements) > 0 && !s.finalNotificationsDeadline().IsZero() {
		return false
	}
	s.collect()
	return !s.woken && !s.isQueued(protocol.Publish) && !s.isQueued(messageLease)
}

// The rest of this file is what a service displays.

func (s *service) answerQueries() error {
	status := func() (protocol.Status, error) { return view.Of(s.state, s.decision), nil }
	for _, q := range [...]struct {
		name   string
		answer any
	}{
		{protocol.QueryStatus, inParts(&s.large, "the status of "+s.name, status, view.Shorten)},
		{protocol.QueryExplain, inParts(&s.large, "the explanation of "+s.name, func() (protocol.Explanation, error) {
			status := view.Of(s.state, s.decision)
			return protocol.Explanation{Lines: explain.Lines(status, "", s.now()), Status: status}, nil
		}, view.ShortenExplanation)},
		{protocol.QueryState, inParts(&s.large, "the state of "+s.name, s.snapshot, nil)},
		{protocol.QueryPlaced, inParts(&s.large, "the placement of "+s.name, func() (protocol.Placement, error) { return view.Placed(s.state, s.decision), nil }, nil)},
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
