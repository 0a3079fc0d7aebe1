package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// Installation is the workflow of an installation in its namespace (F4). Its memo tells workers which store belongs to the namespace. It
// also holds the pause of the whole installation (A16).
func Installation(ctx workflow.Context, in protocol.InstallationInput) error {
	i := &installation{id: in.ID, initialPause: in.Pause, state: &installationState{}}
	i.shell = &shell{
		ctx: ctx, entity: i, name: "everything", application: protocol.InstallationTrail,
		fullState: i.state, mailbox: &i.state.Mailbox, verbs: verb.Installation(),
		cancelAlternatives: []string{"to stop all applies, converge pause --all"},
	}
	i.answerHandlers = map[string]answerHandler{protocol.Configure: i.configure, protocol.PublishLibrary: i.publishLibrary}
	i.pauses = pauses{
		shell: i.shell, pauseState: &i.state.pauseState, scope: entities.ScopeInstallation,
		request: func() protocol.AnnouncePause { return protocol.AnnouncePause{} },
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&i.large, "the status of the installation", i.status, nil)); err != nil {
		return err
	}
	return i.runLoop(in.CarriedState, in.StartMode)
}

// installationState is the state of an Installation workflow; bounded.
type installationState struct {
	pauseState
	knownRules
	baselineState
	recentAudit
	state.Mailbox
}

// installation is one run of an Installation workflow.
type installation struct {
	entityDefaults
	*shell
	pauses
	id           string
	initialPause *entities.Pause // the pause that the workflow was started with
	state        *installationState
	shownDetails string
	// baselineRunning is set while services are being notified of the baseline of rules number baselineNumber.
	baselineRunning bool
	baselineNumber  int64
	stopBaseline    workflow.CancelFunc
}

func (i *installation) usesExternalRules(*verb.Row) bool { return true }

func (i *installation) rules() (*entities.Identity, []entities.Grant, bool) { return i.state.rules() }

func (i *installation) setRules(rules protocol.Rules) {
	before := i.state.Rules
	i.state.setRules(rules)
	i.detectBaselineChange(before)
}

func (i *installation) loadRules(ctx workflow.Context, urgent bool) error {
	before := i.state.Rules
	err := i.loadKnownRules(ctx, &i.state.knownRules, urgent)
	i.detectBaselineChange(before)
	return err
}

// auditBufferSize is the same as for a runtime.
func (i *installation) auditBufferSize() int { return state.AuditFlushSize }

func (i *installation) nextRun(c protocol.CarriedState) (string, any) {
	return protocol.InstallationWorkflow, protocol.InstallationInput{ID: i.id, CarriedState: c}
}

// reconcile announces a pause and notifies services of the baseline.
func (i *installation) reconcile() {
	i.state.addNew(&i.state.Mailbox)
	i.announce()
	i.notifyBaseline()
	i.wakeAt(earliest(i.nextAnnouncement(), i.nextBaselineAttempt()), func(time.Time) string { return "retry" })
	i.show()
}

func (i *installation) status() (protocol.InstallationStatus, error) {
	s := i.state
	return protocol.InstallationStatus{
		Schema: "converge.installation/v1", ID: i.id, Pause: s.Pause, Rules: s.Rules, Announcing: s.Announcing,
		Refused: s.Refused, Audit: s.Recent, Problem: s.Problem,
	}, nil
}

// show updates the text in the Temporal UI.
func (i *installation) show() {
	text := "**open**: the installation is not paused"
	if i.state.Pause != nil {
		text = i.state.pauseText()
	}
	if i.state.Announcing || i.state.PendingRules != 0 {
		text += "\n\nnotifying services"
	}
	if i.state.Problem != "" {
		text += "\n\n" + explain.Plain(i.state.Problem)
	}
	text += entities.BoardMarkdown(entities.BoardPage(i.state.Rules.Board, "installation"))
	if text != i.shownDetails {
		workflow.SetCurrentDetails(i.ctx, text)
		i.shownDetails = text
	}
}

func (i *installation) judge(row *verb.Row, q verb.Request, who entities.Who) (state.Effect, error) {
	switch row.Name {
	case protocol.Pause:
		return i.pause(q, who)
	case protocol.Resume:
		return i.resume(q, who)
	case protocol.Configure, protocol.PublishLibrary:
		return nil, nil // each has its own handler
	}
	return nil, fmt.Errorf("no such verb %q", row.Name)
}

func (i *installation) accepted() string {
	st := *i.state
	st.Checkpoint, st.SeenSignals = state.Checkpoint{}, nil
	return entities.DigestOf(st)
}

func (i *installation) resetWork() { i.activityRunning, i.baselineRunning = false, false }

func (i *installation) onFirstRun(int64) { i.applyInitialPause() }

// replaceInitialPause replaces the initial pause of the input with the one in the store: any client that can start the workflow may have
// set it (G1).
func (i *installation) replaceInitialPause(inForce []protocol.ScopePause) {
	if i.initialPause == nil {
		return
	}
	i.initialPause = nil
	for _, p := range inForce {
		i.initialPause = p.Pause
	}
}

// applyInitialPause pauses everything from the start.
func (i *installation) applyInitialPause() {
	if i.initialPause != nil && i.state.Pause == nil {
		i.state.Pause = i.initialPause
	}
	i.state.Announcing = i.state.Announcing || i.state.Pause != nil
}

func (i *installation) adoptedState(_ protocol.AdoptAnswer, text string) {
	i.applyInitialPause()
	i.recordAudit(entities.EventRestart, nil, "the installation "+text, "")
}
