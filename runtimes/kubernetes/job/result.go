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
	maxLogSize       = 4 << 20   // bytes at the end of a log that are read; a document is smaller
	maxLogLines      = 1_000_000 // the requested number
	logRetryInterval = 300 * time.Millisecond
	maxLogReads      = 5
)

// result reads the result of an ended container from its log. If the log lacks the document, it reads a few times: a node may report
// the end before it has written the last line.
func (a *attempt) result(ctx context.Context, pod *corev1.Pod) (Result, error) {
	state := statusOf(pod).State.Terminated
	for n := 1; ; n++ {
		log, cut, err := a.log(ctx, pod)
		doc, ok := report.Find(log)
		switch {
		case err == nil && ok:
			return resultWithDocument(doc, state), nil
		case err == nil && (a.request.Wrapper == "" || n == maxLogReads):
			return a.resultWithoutDocument(pod, log, cut)
		case n == maxLogReads:
			return Result{}, fmt.Errorf("the log of pod %s, which exited %d, cannot be read: %w", pod.Name, state.ExitCode, err)
		}
		select {
		case <-time.After(logRetryInterval):
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
}

func resultWithDocument(doc report.Document, state *corev1.ContainerStateTerminated) Result {
	doc.Signal = signalName(doc.Signal, state)
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

// resultWithoutDocument is the result of a container without a document: its image has no wrapper, or the wrapper was killed before
// it could print.
func (a *attempt) resultWithoutDocument(pod *corev1.Pod, log []byte, cut bool) (Result, error) {
	state := statusOf(pod).State.Terminated
	res := Result{
		ExitCode: int(state.ExitCode), Signal: signalName("", state), Stdout: log, StdoutTruncated: cut, Merged: true,
		Started: state.StartedAt.Time, Duration: state.FinishedAt.Sub(state.StartedAt.Time),
	}
	missing := state.ExitCode == 127 || state.ExitCode == 128
	if state.Reason == "StartError" || state.Reason == "ContainerCannotRun" || missing && state.Message != "" {
		return res, failure(ReasonNotFound, "image %s cannot start %s: %s", a.request.Image, pod.Spec.Containers[0].Command[0], joinReason(state.Reason, state.Message))
	}
	return res, nil
}

// signalName adds the cluster's reason to a signal.
func signalName(signal string, state *corev1.ContainerStateTerminated) string {
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
		Container: container, TailLines: new(int64(maxLogLines)),
	}).Stream(ctx)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	var kept bytes.Buffer
	for {
		n, err := io.CopyN(&kept, stream, maxLogSize)
		if over := kept.Len() - maxLogSize; over > 0 {
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
func (a *attempt) lastOutput(s observed) Result {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup/6)
	defer cancel()
	for _, pod := range s.pods {
		status := statusOf(pod)
		if status == nil || status.State.Running == nil {
			if status != nil && status.State.Waiting != nil {
				a.lastMessage = fmt.Sprintf("; pod %s waits: %s", pod.Name, joinReason(status.State.Waiting.Reason, status.State.Waiting.Message))
			}
			continue
		}
		log, cut, err := a.log(ctx, pod)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		if last := lines[len(lines)-1]; last != "" {
			a.lastMessage = ": " + runtimes.Clip(last, 256)
		}
		return Result{ExitCode: -1, Stdout: log, StdoutTruncated: cut, Merged: true, Started: status.State.Running.StartedAt.Time}
	}
	return Result{ExitCode: -1}
}
