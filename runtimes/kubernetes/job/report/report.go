// Package report is the document that converge-wrapper prints about a command: both streams, the exit code, start and duration (C8).
// It is one line, so that it survives a platform that merges streams into one log. The package both writes and reads it.
//
// It imports only the standard library, so that the wrapper stays small.
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

// Schema names the version of the document. A version only gains fields.
const Schema = "converge.command/v1"

// Opening is the beginning of every document.
const Opening = `{"schema":"` + Schema + `"`

// Default limits of the bytes that the wrapper keeps of each stream.
const (
	LimitStdout = 256 << 10 // a complete structured answer (C6)
	LimitStderr = 64 << 10
)

// Document is the result of a command.
type Document struct {
	Schema  string   `json:"schema"`
	Command []string `json:"command"`
	// ExitCode is the command's own. Without one it is the value that shells use: 128 plus the signal's number after a signal, 124
	// after the timeout, 126 not executable, 127 not found.
	ExitCode int    `json:"exitCode"`
	Signal   string `json:"signal,omitempty"` // the signal that ended the command
	// TimedOut: the wrapper ended the command at its timeout.
	TimedOut bool `json:"timedOut,omitempty"`
	// Error says why the command could not be started, or why it was ended.
	Error     string    `json:"error,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	Duration  Duration  `json:"duration"`
	Stdout    Stream    `json:"stdout"`
	Stderr    Stream    `json:"stderr"`
}

// Duration is a duration with a readable encoding: "1.5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Stream is the kept end of stdout or stderr.
type Stream struct {
	Data []byte
	// Bytes is the number of bytes that the command printed; more than len(Data) if the beginning was dropped.
	Bytes int64
}

// Truncated reports whether the beginning is missing.
func (s Stream) Truncated() bool { return s.Bytes > int64(len(s.Data)) }

// stream is a Stream in the document: text if it is valid UTF-8, otherwise base64, so that no byte is lost.
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

// Find extracts the document from a log: it is the last line that is not blank. Earlier lines, such as output of a program past the
// wrapper, are ignored. ok is false if the last line is no document.
func Find(log []byte) (doc Document, ok bool) {
	log = bytes.TrimSpace(log)
	line := log[bytes.LastIndexByte(log, '\n')+1:]
	at := bytes.Index(line, []byte(Opening)) // after output without a newline at its end
	if at < 0 {
		return Document{}, false
	}
	if err := json.Unmarshal(line[at:], &doc); err != nil || doc.Schema != Schema {
		return Document{}, false
	}
	return doc, true
}
