package custom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// ParseDocument reads a structured fetch document (C4). A required string must not be empty, except a version: an empty one is
// unknown. An optional field that is null counts as absent. Unknown fields are ignored. Every error is an *entities.ReadingError of
// code malformed-output (C6) whose message begins with its position: "objects[2].versions[0].version: …" or "line 3, column 7: …".
func ParseDocument(stdout []byte) ([]entities.Object, error) {
	objects, err := document{show: func(s string) string { return s }}.parse(stdout)
	if err != nil {
		return nil, &entities.ReadingError{Code: runtimes.CodeMalformed, Message: err.Error()}
	}
	return objects, nil
}

// document parses a document; show redacts the values that errors quote, before they are shortened (a part of a secret would not be
// recognised).
type document struct {
	show func(string) string
	err  error // the first error; after it readers return zero values
}

func (d document) parse(stdout []byte) ([]entities.Object, error) {
	items, err := d.decodeList(stdout, "objects", "[] if there are no objects")
	if err != nil {
		return nil, err
	}
	objects := []entities.Object{}
	seen := map[[2]string]int{}
	for i, item := range items {
		path := fmt.Sprintf("objects[%d]", i)
		o := d.object(path, item)
		key := [2]string{o.Type, o.Name}
		if first, duplicate := seen[key]; duplicate && d.err == nil {
			d.addError(path, "%s %s is duplicated; the first is objects[%d]", d.quote(o.Type), d.quote(o.Name), first)
		}
		seen[key] = i
		objects = append(objects, o)
	}
	if d.err != nil {
		return nil, d.err
	}
	return objects, nil
}

// decodeList reads a document with one list, and returns its elements.
func (d document) decodeList(stdout []byte, field, emptyHint string) ([]any, error) {
	root, err := d.decode(stdout)
	if err != nil {
		return nil, err
	}
	fields, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("line 1, column 1: %s; expected an object with %q", d.describe(root), field)
	}
	list, ok := fields[field]
	if !ok || list == nil {
		return nil, fmt.Errorf("%s: %s; expected a list (%s)", field, d.describeField(fields, field), emptyHint)
	}
	items := d.list(field, list)
	return items, d.err
}

// decode reads the single JSON value.
func (d document) decode(stdout []byte) (any, error) {
	if invalid := invalidUTF8(stdout); invalid >= 0 {
		return nil, fmt.Errorf("%s: byte 0x%02x is not UTF-8", position(stdout, invalid), stdout[invalid])
	}
	if len(bytes.TrimSpace(stdout)) == 0 {
		return nil, errors.New("line 1, column 1: nothing on stdout; expected a JSON document")
	}
	dec := json.NewDecoder(bytes.NewReader(stdout))
	dec.UseNumber()
	var root any
	if err := dec.Decode(&root); err != nil {
		return nil, d.syntax(stdout, err)
	}
	end := int(dec.InputOffset())
	if rest := bytes.TrimLeft(stdout[end:], " \t\r\n"); len(rest) > 0 {
		return nil, fmt.Errorf("%s: more after the document: %s", position(stdout, len(stdout)-len(rest)), d.quote(string(rest)))
	}
	return root, nil
}

func (d document) syntax(stdout []byte, err error) error {
	start := bytes.TrimLeft(stdout, " \t\r\n")
	if start[0] != '{' && start[0] != '[' {
		return fmt.Errorf("%s: not JSON: it begins with %s", position(stdout, len(stdout)-len(start)), d.quote(string(start)))
	}
	at := len(stdout)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
		at = max(0, int(syntax.Offset)-1)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the document ends too early")
	}
	return fmt.Errorf("%s: %s", position(stdout, at), d.show(err.Error()))
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

// position counts lines and, in characters, columns from 1.
func position(b []byte, offset int) string {
	before := b[:min(offset, len(b))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}

func (d *document) object(path string, v any) entities.Object {
	f := d.fields(path, v)
	o := entities.Object{
		Name:    d.required(path, f, "name"),
		Type:    d.required(path, f, "objectType"),
		Status:  d.status(path, f),
		Message: d.text(path, f, "message"),
	}
	for i, item := range d.list(path+".versions", f["versions"]) {
		o.Versions = append(o.Versions, d.version(fmt.Sprintf("%s.versions[%d]", path, i), item))
	}
	for i, item := range d.list(path+".externalLinks", f["externalLinks"]) {
		o.Links = append(o.Links, d.link(fmt.Sprintf("%s.externalLinks[%d]", path, i), item))
	}
	for i, item := range d.list(path+".debugEvents", f["debugEvents"]) {
		o.Events = append(o.Events, d.event(fmt.Sprintf("%s.debugEvents[%d]", path, i), item))
	}
	return o
}

func (d *document) version(path string, v any) entities.ObjectVersion {
	f := d.fields(path, v)
	if f["version"] == nil {
		d.addError(path+".version", "%s; expected a string (empty for unknown)", d.describeField(f, "version"))
	}
	return entities.ObjectVersion{
		Version:           d.text(path, f, "version"),
		Active:            d.flag(path, f, "active"),
		Drifted:           d.flag(path, f, "drifted"),
		Replicas:          d.count(path, f, "replicas"),
		AvailableReplicas: d.count(path, f, "availableReplicas"),
		TargetReplicas:    d.count(path, f, "targetReplicas"),
	}
}

func (d *document) link(path string, v any) entities.Link {
	f := d.fields(path, v)
	l := entities.Link{Type: d.text(path, f, "type"), URL: d.required(path, f, "url"), Name: d.required(path, f, "name")}
	if l.Type != "DETAIL" && l.Type != "LOG" {
		l.Type = "UNKNOWN" // any other type: scripts may know more types than Converge does
	}
	return l
}

func (d *document) event(path string, v any) entities.Event {
	f := d.fields(path, v)
	timestamp := d.required(path, f, "timestamp")
	e := entities.Event{Message: d.required(path, f, "message")}
	if d.err != nil {
		return e
	}
	var t time.Time
	err := t.UnmarshalText([]byte(timestamp)) // strict, unlike time.Parse
	if t = t.UTC(); err != nil || t.Year() < 0 || t.Year() > 9999 {
		d.addError(path+".timestamp", "%s; expected RFC 3339, such as 2006-01-02T15:04:05Z", d.quote(timestamp))
		return e
	}
	e.Timestamp = t
	return e
}

func (d *document) status(path string, f map[string]any) entities.ObjectStatus {
	if f["status"] == nil {
		return entities.ObjectPending
	}
	s := entities.ObjectStatus(d.text(path, f, "status"))
	switch s {
	case entities.ObjectPending, entities.ObjectSucceeded, entities.ObjectFailed:
	default:
		d.addError(path+".status", "%s; expected PENDING, SUCCEEDED or FAILED", d.describe(f["status"]))
	}
	return s
}

func (d *document) required(path string, f map[string]any, key string) string {
	s := d.text(path, f, key)
	if s == "" {
		d.addError(path+"."+key, "%s; expected a string that is not empty", d.describeField(f, key))
	}
	return s
}

func (d *document) text(path string, f map[string]any, key string) string {
	return optional[string](d, path, f, key, "a string")
}

func (d *document) flag(path string, f map[string]any, key string) bool {
	return optional[bool](d, path, f, key, "true or false")
}

func optional[T any](d *document, path string, f map[string]any, key, expected string) T {
	v, ok := f[key].(T)
	if !ok && f[key] != nil {
		d.addError(path+"."+key, "%s; expected %s", d.describe(f[key]), expected)
	}
	return v
}

// count reads a number of replicas. Languages that have only floating point numbers print 3.0.
func (d *document) count(path string, f map[string]any, key string) int {
	v, ok := f[key].(json.Number)
	if !ok && f[key] == nil {
		return 0
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if !ok || err != nil || n != math.Trunc(n) || n < 0 || n > math.MaxInt32 {
		d.addError(path+"."+key, "%s; expected a whole number from 0 to %d", d.describe(f[key]), math.MaxInt32)
		return 0
	}
	return int(n)
}

func (d *document) fields(path string, v any) map[string]any {
	f, ok := v.(map[string]any)
	if !ok {
		d.addError(path, "%s; expected an object", d.describe(v))
	}
	return f
}

func (d *document) list(path string, v any) []any {
	l, ok := v.([]any)
	if !ok && v != nil {
		d.addError(path, "%s; expected a list", d.describe(v))
	}
	return l
}

func (d *document) addError(path, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(path+": "+format, args...)
	}
}

func (d document) describeField(f map[string]any, key string) string {
	if v, ok := f[key]; ok {
		return d.describe(v)
	}
	return "missing"
}

// describe names the type of a value in words for users.
func (d document) describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return d.quote(v)
	case json.Number:
		return "the number " + runtimes.Clip(d.show(string(v)), 40)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "an object"
}

func (d document) quote(s string) string {
	return strconv.Quote(runtimes.Clip(d.show(s), 64))
}
