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
	i := &installation{id: in.ID, held: in.Pause, state: &installationState{}}
	i.shell = &shell{
		ctx: ctx, of: i, name: "everything", application: protocol.InstallationTrail,
		whole: i.state, desk: &i.state.Desk, verbs: verb.Installation(),
		stops: []string{"to stop all applies, converge pause --all"},
	}
	i.answers = map[string]answering{protocol.Configure: i.configure, protocol.PublishLibrary: i.publishLibrary}
	i.pauses = pauses{
		shell: i.shell, of: &i.state.pauseState, scope: entities.ScopeInstallation,
		request: func() protocol.AnnouncePause { return protocol.AnnouncePause{} },
	}
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&i.large, "the status of the installation", i.status, nil)); err != nil {
		return err
	}
	return i.live(in.Carried, in.Beginning)
}

// installationState is the state of an Installation workflow; bounded.
type installationState struct {
	pauseState
	rulesKnown
	spreadState
	recent
	state.Desk
}

// installation is one run of an Installation workflow.
type installation struct {
	plain
	*shell
	pauses
	id    string
	held  *entities.Pause // the pause that the workflow was started with
	state *installationState
	shown string
	// telling is set while services are being notified of the baseline of rules number told.
	telling     bool
	told        int64
	stopTelling workflow.CancelFunc
}

func (i *installation) ruledElsewhere(*verb.Row) bool { return true }

func (i *installation) rules() (*entities.Identity, []entities.Grant, bool) { return i.state.rules() }

func (i *installation) knows(rules protocol.Rules) {
	before := i.state.Rules
	i.state.knows(rules)
	i.compare(before)
}

func (i *installation) consult(ctx workflow.Context) error {
	before := i.state.Rules
	err := i.consultRules(ctx, &i.state.rulesKnown)
	i.compare(before)
	return err
}

// flushAt is the same as for a runtime.
func (i *installation) flushAt() int { return state.FlushAudit }

func (i *installation) next(c protocol.Carried) (string, any) {
	return protocol.InstallationWorkflow, protocol.InstallationInput{ID: i.id, Carried: c}
}

// turn announces a pause and spreads the baseline.
func (i *installation) turn() {
	i.state.recall(&i.state.Desk)
	i.announce()
	i.spread()
	i.wakeAt(earliest(i.tellsAgain(), i.looksAgain()), func(time.Time) string { return "retry" })
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
		text = i.state.since()
	}
	if i.state.Announcing || i.state.Spread != 0 {
		text += "\n\nnotifying services"
	}
	if i.state.Problem != "" {
		text += "\n\n" + explain.Plain(i.state.Problem)
	}
	if text != i.shown {
		workflow.SetCurrentDetails(i.ctx, text)
		i.shown = text
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
	st.Checkpoint, st.Heard = state.Checkpoint{}, nil
	return entities.DigestOf(st)
}

func (i *installation) dropped() { i.running, i.telling = false, false }

func (i *installation) begins(int64) { i.hold() }

// holds replaces the initial pause of the input with the one in the store: any client that can start the workflow may have set it (G1).
func (i *installation) holds(inForce []protocol.ScopePause) {
	if i.held == nil {
		return
	}
	i.held = nil
	for _, p := range inForce {
		i.held = p.Pause
	}
}

// hold pauses everything from the start.
func (i *installation) hold() {
	if i.held != nil && i.state.Pause == nil {
		i.state.Pause = i.held
	}
	i.state.Announcing = i.state.Announcing || i.state.Pause != nil
}

func (i *installation) adoptedState(_ protocol.AdoptAnswer, why *protocol.Restart) {
	i.hold()
	i.note(entities.EventRestart, nil, "the installation continues from its checkpoint: "+restarted(why), "")
}
