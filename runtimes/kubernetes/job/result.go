package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

const (
	largestLog = 4 << 20   // bytes at the end of a log that are read; a document is smaller
	linesOfLog = 1_000_000 // the requested number
	readAgain  = 300 * time.Millisecond
	readTimes  = 5
)

// result reads the result of an ended container from its log. If the log lacks the document, it reads a few times: a node may report
// the end before it has written the last line.
func (a *attempt) result(ctx context.Context, pod *corev1.Pod) (Result, error) {
	state := statusOf(pod).State.Terminated
	for again := 1; ; again++ {
		log, cut, err := a.log(ctx, pod)
		doc, ok := report.Find(log)
		switch {
		case err == nil && ok:
			return documented(doc, state), nil
		case err == nil && (a.request.Wrapper == "" || again == readTimes):
			return a.bare(pod, log, cut)
		case again == readTimes:
			return Result{}, fmt.Errorf("the log of pod %s, which exited %d, cannot be read: %w", pod.Name, state.ExitCode, err)
		}
		select {
		case <-time.After(readAgain):
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
}

func documented(doc report.Document, state *corev1.ContainerStateTerminated) Result {
	doc.Signal = killed(doc.Signal, state)
	return ResultOf(doc)
}

// ResultOf converts a document to a Result.
func ResultOf(doc report.Document) Result {
	return Result{
		ExitCode: doc.ExitCode, Signal: doc.Signal, TimedOut: doc.TimedOut, Problem: doc.Error,
		Stdout: doc.Stdout.Data, Stderr: doc.Stderr.Data,
		StdoutTruncated: doc.Stdout.Truncated(), StderrTruncated: doc.Stderr.Truncated(),
		Started: doc.StartedAt, Duration: time.Duration(doc.Duration),
	}
}

// bare is the result of a container without a document: its image has no wrapper, or the wrapper was killed before it could print.
func (a *attempt) bare(pod *corev1.Pod, log []byte, cut bool) (Result, error) {
	state := statusOf(pod).State.Terminated
	res := Result{
		ExitCode: int(state.ExitCode), Signal: killed("", state), Stdout: log, StdoutTruncated: cut, Merged: true,
		Started: state.StartedAt.Time, Duration: state.FinishedAt.Sub(state.StartedAt.Time),
	}
	missing := state.ExitCode == 127 || state.ExitCode == 128
	if state.Reason == "StartError" || state.Reason == "ContainerCannotRun" || missing && state.Message != "" {
		return res, failure(ReasonNotFound, "image %s cannot start %s: %s", a.request.Image, pod.Spec.Containers[0].Command[0], said(state.Reason, state.Message))
	}
	return res, nil
}

// killed adds the cluster's reason to a signal.
func killed(signal string, state *corev1.ContainerStateTerminated) string {
	switch {
	case state.Reason == "OOMKilled":
		return "killed (OOMKilled: over the container's memory limit)"
	case signal == "" && state.Signal != 0:
		return fmt.Sprint(state.Signal)
	}
	return signal
}

// log reads the end of a container's log; cut reports that its beginning is missing.
func (a *attempt) log(ctx context.Context, pod *corev1.Pod) (log []byte, cut bool, err error) {
	stream, err := a.client.Log(pod.Namespace, pod.Name, &corev1.PodLogOptions{
		Container: container, TailLines: new(int64(linesOfLog)),
	}).Stream(ctx)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	var kept bytes.Buffer
	for {
		n, err := io.CopyN(&kept, stream, largestLog)
		if over := kept.Len() - largestLog; over > 0 {
			kept.Next(over)
			cut = true
		}
		if err == io.EOF { //nolint:errorlint // CopyN returns it as it is
			return kept.Bytes(), cut, nil
		}
		if err != nil || n == 0 {
			return kept.Bytes(), cut, err
		}
	}
}

// lastOutput reads the output of a command that is about to be removed.
func (a *attempt) lastOutput(s seen) Result {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup/6)
	defer cancel()
	for _, pod := range s.pods {
		status := statusOf(pod)
		if status == nil || status.State.Running == nil {
			if status != nil && status.State.Waiting != nil {
				a.last = fmt.Sprintf("; pod %s waits: %s", pod.Name, said(status.State.Waiting.Reason, status.State.Waiting.Message))
			}
			continue
		}
		log, cut, err := a.log(ctx, pod)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		if last := lines[len(lines)-1]; last != "" {
			a.last = ": " + runtimes.Clip(last, 256)
		}
		return Result{ExitCode: -1, Stdout: log, StdoutTruncated: cut, Merged: true, Started: status.State.Running.StartedAt.Time}
	}
	return Result{ExitCode: -1}
}
