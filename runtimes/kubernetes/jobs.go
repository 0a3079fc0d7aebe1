package kubernetes

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
)

// A Job runs once. Its annotation records how many runs there were, and the attempt of an apply that started the last one: "2 TRY".

// runsOf reads that annotation; zero if there is none.
func runsOf(o *unstructured.Unstructured) (runs int, attemptID string) {
	text, attemptID, _ := strings.Cut(o.GetAnnotations()[AnnotationRuns], " ")
	runs, _ = strconv.Atoi(text) // another writer wrote text that is no number
	return max(runs, 1), attemptID
}

// mustRerun reports whether a failed Job has to run again: it failed in another version, or a person has retried since. An automatic
// attempt does not run it again, since the Job itself limits its retries (backoffLimit).
func (a *apply) mustRerun(t *trial) bool {
	if idOf(t.Unstructured).kind != kindJob || t.outcome != unchanged && t.outcome != changed {
		return false
	}
	status, _ := health(t.live)
	_, attemptID := runsOf(t.live)
	return status == entities.ObjectFailed && (versionIn(t.live) != versionIn(t.Unstructured) || a.attempt == 1 && attemptID != a.attemptID)
}

// recordRun records the run of a Job that is about to be created.
func (a *apply) recordRun(t *trial) error {
	if idOf(t.Unstructured).kind != kindJob {
		return nil
	}
	t.runs = 1
	if t.rerun {
		before, _ := runsOf(t.live)
		t.runs += before
	}
	note := strings.TrimSpace(strconv.Itoa(t.runs) + " " + a.attemptID)
	t.Unstructured = t.DeepCopy()
	if err := merge(t.Object, map[string]string{AnnotationRuns: note}, []string{"metadata", "annotations"}); err != nil {
		return err
	}
	return t.encode()
}
