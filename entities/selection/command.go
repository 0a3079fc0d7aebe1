package selection

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file defines the input and the output of a user's command that selects the next instances (D24).

// Candidate is an instance that the release concerns, as the command receives it.
type Candidate struct {
	Name    string            `json:"name"`
	Runtime string            `json:"runtime"`
	Labels  map[string]string `json:"labels,omitempty"` // of the runtime; filled in when the command runs
	Updated bool              `json:"updated"`          // the release is its target
	Stable  bool              `json:"stable"`           // it runs its target and is healthy
	Since   time.Time         `json:"since,omitzero"`   // when it became stable at the release
	Held    bool              `json:"held"`             // it cannot be selected now, for example because it is paused
}

// Answer is the output of the command: the next instances in order, and the delay until its next run.
type Answer struct {
	Next       []string `json:"next"`
	RetryAfter string   `json:"askAgain"` // "10m"; empty: the default interval
}

// Bounds of an answer.
const (
	MaxAnswerBytes = 12 << 10 // bytes
	minRetry       = time.Second
	maxRetry       = 24 * time.Hour
)

// parseAnswer parses an answer about these candidates. Any deviation is an error, and then nothing is selected.
func parseAnswer(printed string, all []Candidate) (next []string, retry time.Duration, err error) {
	if len(printed) > MaxAnswerBytes {
		return nil, 0, fmt.Errorf("it printed more than %d KiB", MaxAnswerBytes>>10)
	}
	var a Answer
	d := json.NewDecoder(strings.NewReader(printed))
	d.DisallowUnknownFields()
	err = d.Decode(&a)
	if _, more := d.Token(); err != nil || !errors.Is(more, io.EOF) || a.Next == nil {
		return nil, 0, fmt.Errorf(`it printed %q; expected JSON such as {"next": ["eu-1"], "askAgain": "10m"}`, entities.Clip(strings.TrimSpace(printed), 80))
	}
	for n, name := range a.Next {
		if why := whyNotSelectable(name, all, a.Next[:n]); why != "" {
			return nil, 0, fmt.Errorf("it selects %q, which %s", entities.Clip(name, 80), why)
		}
	}
	if a.RetryAfter != "" {
		if retry, err = time.ParseDuration(a.RetryAfter); err != nil || retry < minRetry || retry > maxRetry {
			return nil, 0, fmt.Errorf("askAgain is %q; expected a duration such as 10m, from %s to %s",
				entities.Clip(a.RetryAfter, 80), entities.Length(minRetry), entities.Length(maxRetry))
		}
	}
	return a.Next, retry, nil
}

// whyNotSelectable returns why a name cannot be next, or "".
func whyNotSelectable(name string, all []Candidate, before []string) string {
	n := slices.IndexFunc(all, func(c Candidate) bool { return c.Name == name })
	switch {
	case n < 0:
		return "is not an instance that the release concerns here"
	case slices.Contains(before, name):
		return "is named twice"
	case all[n].Updated:
		return "is updated already"
	case all[n].Held:
		return "is held"
	}
	return ""
}

// packedCandidates is the prefix of packed candidates: gzip in base64.
const packedCandidates = "gzip:"

// Pack compresses candidates for the evaluator.
func Pack(candidates string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(candidates))
	if err = errors.Join(err, w.Close()); err != nil {
		return candidates // a write to memory does not fail
	}
	return packedCandidates + base64.StdEncoding.EncodeToString(out.Bytes())
}

func unpack(candidates string) ([]byte, error) {
	packed, is := strings.CutPrefix(candidates, packedCandidates)
	if !is {
		return []byte(candidates), nil
	}
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// Candidates returns the candidates of an evaluation.
func Candidates(e entities.Evaluation) (all []Candidate, err error) {
	raw, err := unpack(e.Candidates)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the candidates: %w", err)
	}
	return all, nil
}

// SelectAll is the reading that selects every free candidate, for use without a run of the command.
func SelectAll(e entities.Evaluation, at time.Time) entities.CheckReading {
	all, err := Candidates(e)
	if err != nil {
		return entities.CheckReading{Verdict: entities.Error, Reason: err.Error(), At: at}
	}
	r := entities.CheckReading{Verdict: entities.Pass, Reason: "is assumed to select all", At: at}
	for _, c := range all {
		if !c.Updated && !c.Held {
			r.Selected = append(r.Selected, c.Name)
		}
	}
	return r
}

// ToReading converts an answer about these candidates into a reading at a time.
func ToReading(printed string, all []Candidate, at time.Time) (entities.CheckReading, error) {
	next, retry, err := parseAnswer(printed, all)
	if err != nil {
		return entities.CheckReading{}, err
	}
	r := entities.CheckReading{Verdict: entities.Pass, Reason: "selects " + strings.Join(next, ", "), Selected: next, At: at}
	if len(next) == 0 {
		r.Verdict, r.Reason = entities.Wait, "selects none now"
	}
	if retry > 0 {
		r.Reason += "; runs again after " + entities.Length(retry)
		r.Retry = at.Add(retry)
	}
	return r, nil
}
