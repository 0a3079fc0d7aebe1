package kubernetes

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
)

// A Job runs once. What it says of its runs is how many there were, and in which attempt at an apply the last one began: "2 TRY".

// runsOf reads that; none when it was never noted.
func runsOf(o *unstructured.Unstructured) (runs int, try string) {
	text, try, _ := strings.Cut(o.GetAnnotations()[AnnotationRuns], " ")
	runs, _ = strconv.Atoi(text) // what is no number was written by somebody else
	return max(runs, 1), try
}

// again reports whether a Job that failed is to run again: it failed in another version, or a person has retried that since. An
// attempt that comes by itself does not, since the Job itself says how often it is tried (backoffLimit).
func (a *apply) again(t *trial) bool {
	if idOf(t.Unstructured).kind != kindJob || t.outcome != unchanged && t.outcome != changed {
		return false
	}
	status, _ := health(t.live)
	_, try := runsOf(t.live)
	return status == entities.ObjectFailed && (versionIn(t.live) != versionIn(t.Unstructured) || a.attempt == 1 && try != a.tryName)
}

// begins notes the run of a Job that is about to be made.
func (a *apply) begins(t *trial) error {
	if idOf(t.Unstructured).kind != kindJob {
		return nil
	}
	t.runs = 1
	if t.fails {
		before, _ := runsOf(t.live)
		t.runs += before
	}
	note := strings.TrimSpace(strconv.Itoa(t.runs) + " " + a.tryName)
	t.Unstructured = t.DeepCopy()
	if err := merge(t.Object, map[string]string{AnnotationRuns: note}, []string{"metadata", "annotations"}); err != nil {
		return err
	}
	return t.encode()
}
