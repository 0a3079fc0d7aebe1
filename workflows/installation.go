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

// Installation is the life of an installation in its namespace (F4): by its memo workers know which store the namespace goes
// with, and it remembers whether everything is paused (A16).
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

// installationState is what an Installation workflow knows; bounded.
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
	held  *entities.Pause // from the beginning
	state *installationState
	shown string
	// telling: services are being told to look at the baseline of the rules of a number.
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

// flushAt: as of a runtime.
func (i *installation) flushAt() int { return state.FlushAudit }

func (i *installation) next(c protocol.Carried) (string, any) {
	return protocol.InstallationWorkflow, protocol.InstallationInput{ID: i.id, Carried: c}
}

// turn announces a pause.
func (i *installation) turn() {
	i.state.recall(&i.state.Desk)
	i.announce()
	i.spread()
	i.wakeAt(earliest(i.tellsAgain(), i.looksAgain()), func(time.Time) string { return "try again" })
	i.show()
}

func (i *installation) status() (protocol.InstallationStatus, error) {
	s := i.state
	return protocol.InstallationStatus{
		Schema: "converge.installation/v1", ID: i.id, Pause: s.Pause, Rules: s.Rules, Announcing: s.Announcing,
		Refused: s.Refused, Audit: s.Recent, Problem: s.Problem,
	}, nil
}

// show keeps what the Temporal UI shows up to date.
func (i *installation) show() {
	text := "**open**: nothing is paused as a whole"
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
		return nil, nil // each is carried out by itself
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

// holds takes from the store whether everything is paused from the beginning: whoever started the workflow may say so too (G1).
func (i *installation) holds(inForce []protocol.ScopePause) {
	if i.held == nil {
		return
	}
	i.held = nil
	for _, p := range inForce {
		i.held = p.Pause
	}
}

// hold pauses everything from the beginning.
func (i *installation) hold() {
	if i.held != nil && i.state.Pause == nil {
		i.state.Pause = i.held
	}
	i.state.Announcing = i.state.Announcing || i.state.Pause != nil
}

func (i *installation) adoptedState(_ protocol.AdoptAnswer, why *protocol.Restart) {
	i.hold()
	i.note(entities.EventRestart, nil, "the installation goes on from its checkpoint: "+restarted(why), "")
}
