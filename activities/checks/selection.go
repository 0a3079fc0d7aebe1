package checks

import (
	"context"
	"encoding/json"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/selection"
)

// selectionSchema is the version of the format of selectionInput. Fields are only added within a version.
const selectionSchema = "converge.selection/v1"

// selectionInput is the input of a command that selects the next instances (D24): the input of a check without objects, plus the
// instances and the time.
type selectionInput struct {
	entities.CheckInput
	Instances []selection.Candidate `json:"instances"`
	Now       time.Time             `json:"now"`
}

// selectionCheck runs a command that selects the next instances of a release. It runs like the commands of checks. Its output is JSON, and
// any exit code but 0 is an ERROR.
type selectionCheck struct{ sources Sources }

func (s selectionCheck) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.Command
	switch {
	case d == nil || d.Job != nil || d.Task != nil:
		return incomplete(a)
	case s.sources.Commands == nil:
		return unevaluated("commands are not available here")
	}
	all, err := selection.Candidates(a.Evaluation)
	if err != nil {
		return entities.CheckReading{}, err
	}
	for n := range all {
		all[n].Labels = a.Definition.RuntimeLabels[all[n].Runtime]
	}
	status, err := s.sources.ownStatus(ctx)
	if err != nil {
		return entities.CheckReading{}, err
	}
	in := selectionInput{CheckInput: inputOf(a, status), Instances: all, Now: a.Now}
	in.Schema, in.Objects, in.Omitted = selectionSchema, []entities.Object{}, in.Omitted+len(in.Objects)
	document, err := json.Marshal(in)
	if err != nil {
		return entities.CheckReading{}, err
	}
	once := command(s).once(a, d)
	once.Document = string(document)
	program := d.Command.Argv[0]
	out, signal, err := s.sources.Commands.Run(ctx, once)
	switch {
	case err != nil:
		return entities.CheckReading{}, err
	case signal != "":
		return unevaluated("%s was ended by signal %s%s", program, signal, lastLineSuffix(out.Stderr))
	case out.ExitCode != 0:
		return unevaluated("%s exited %d%s", program, out.ExitCode, lastLineSuffix(out.Stderr, out.Stdout))
	}
	r, err := selection.ToReading(out.Stdout, all, a.Now)
	if err != nil {
		return unevaluated("%s: %w", program, err)
	}
	return r, nil
}
