// Package report is the document that converge-wrapper prints about a command: both streams, the
// exit code, start and duration (C8), in one line, so that it survives a platform that merges
// streams into one log. Writing and reading it are here together.
//
// It imports the standard library alone, so that the wrapper stays small.
package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Schema names the document. Within it fields are only added.
const Schema = "converge.command/v1"

// Opening is what every document begins with.
const Opening = `{"schema":"` + Schema + `"`

// Bounds of what the wrapper keeps of each stream, in bytes, unless set otherwise.
const (
	LimitStdout = 256 << 10 // a whole structured answer (C6)
	LimitStderr = 64 << 10
)

// Document says how a command went.
type Document struct {
	Schema  string   `json:"schema"`
	Command []string `json:"command"`
	// ExitCode is the command's own. Without one it is what shells use: 128 and the signal's number
	// after a signal, 124 after the timeout, 126 not executable, 127 not found.
	ExitCode int    `json:"exitCode"`
	Signal   string `json:"signal,omitempty"` // that ended the command
	// TimedOut: the command was ended because its time was over.
	TimedOut bool `json:"timedOut,omitempty"`
	// Error says why the command could not be started, or not be left to run.
	Error     string    `json:"error,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	Duration  Duration  `json:"duration"`
	Stdout    Stream    `json:"stdout"`
	Stderr    Stream    `json:"stderr"`
}

// Duration is a length of time that reads like one: "1.5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Stream is what is kept of stdout or stderr: its end.
type Stream struct {
	Data []byte
	// Bytes is how many the command printed; more than len(Data) when the beginning was dropped.
	Bytes int64
}

// Truncated reports whether the beginning is missing.
func (s Stream) Truncated() bool { return s.Bytes > int64(len(s.Data)) }

// stream is a Stream in the document: text where it is valid UTF-8, else base64, so that no byte is
// lost.
type stream struct {
	Text      string `json:"text,omitempty"`
	Base64    string `json:"base64,omitempty"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated"`
}

// MarshalJSON implements json.Marshaler.
func (s Stream) MarshalJSON() ([]byte, error) {
	v := stream{Bytes: s.Bytes, Truncated: s.Truncated()}
	if utf8.Valid(s.Data) {
		v.Text = string(s.Data)
	} else {
		v.Base64 = base64.StdEncoding.EncodeToString(s.Data)
	}
	return encode(v)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Stream) UnmarshalJSON(text []byte) error {
	var v stream
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	s.Data, s.Bytes = []byte(v.Text), v.Bytes
	if v.Base64 != "" {
		data, err := base64.StdEncoding.DecodeString(v.Base64)
		if err != nil {
			return err
		}
		s.Data = data
	}
	if s.Bytes < int64(len(s.Data)) || s.Truncated() != v.Truncated {
		return fmt.Errorf("%d of %d bytes, truncated: %t", len(s.Data), s.Bytes, v.Truncated)
	}
	return nil
}

// Write prints the document as one line.
func (d Document) Write(to io.Writer) error {
	d.Schema = Schema
	line, err := encode(d)
	if err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// Find takes the document out of a log: its last line that is not blank. What stands before it, such
// as what a program wrote past the wrapper, is left alone. ok is false when the last line is no
// document.
func Find(log []byte) (doc Document, ok bool) {
	log = bytes.TrimSpace(log)
	line := log[bytes.LastIndexByte(log, '\n')+1:]
	at := bytes.Index(line, []byte(Opening)) // after what somebody printed without a line's end
	if at < 0 {
		return Document{}, false
	}
	if err := json.Unmarshal(line[at:], &doc); err != nil || doc.Schema != Schema {
		return Document{}, false
	}
	return doc, true
}
