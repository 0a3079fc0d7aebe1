package activities

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// However long an error or a message of a runtime is, its subject, its last clause and the remedy reach workflow state and plans.
func TestLongErrorsKeepCauseAndRemedy_D18(t *testing.T) {
	t.Parallel()
	const subject, end = "apply Job shop/migrate: ", ": field is immutable (set the annotation)"
	text := subject + strings.Repeat("value ", 2000) + end
	long := errors.New(text)
	status := entities.ReadingError{Code: "forbidden", Message: text}
	objects := reading([]entities.Object{{Name: "web", Type: "Job", Message: text, Events: []entities.Event{{Message: text}}}}, nil).Objects
	for what, short := range map[string]string{
		"an apply":                   applyAnswer(long).Err,
		"a preview that fails":       failedPreview("x", long).Message,
		"a change in a preview":      previewOf([]runtimes.Change{{Message: text}}).Changes[0].Message,
		"a conflict in a preview":    previewOf([]runtimes.Change{{Conflicts: []string{text}}}).Changes[0].Conflicts[0],
		"a reading that fails":       reading(nil, &status).Err.Message,
		"a reading that never began": notReadyReading("payload", long).Err.Message,
		"an object":                  objects[0].Message,
		"an event":                   objects[0].Events[0].Message,
	} {
		require.Less(t, len(short), len(text), what)
		require.True(t, strings.HasPrefix(short, subject) && strings.HasSuffix(short, end), "%s: %s", what, short)
	}

	several := errors.Join(long, errors.New("apply Service shop/web: no (remedy)"), long)
	for _, line := range strings.Split(applyAnswer(several).Err, "\n") {
		require.True(t, strings.HasPrefix(line, "apply ") && strings.HasSuffix(line, ")"), line)
	}
}
