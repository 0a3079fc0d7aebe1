package board

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/act"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// sheet is the page on which a person acts on a service: what differs, what the verb needs, and why it would be refused.
type sheet struct {
	Verb        string
	Title       string
	Description string
	Service     connection.ServiceName
	Fields      []field
	RequestID   string // a form that is sent twice is one act
	By          string
	Refused     string // why it would be, or was, refused
	Disabled    bool
	Channels    []channelView // those that the act is about
	Approval    *explain.OpenApproval
	Changes     *changes // nil: the act is not about a version
}

// field is an input of a sheet.
type field struct {
	Name, Label, Kind, Value, Help string
	Options                        []string
	Required                       bool
	Fixed                          bool // the sheet is about this value
}

// The kinds of inputs.
const (
	kindText   = "text"
	kindChoice = "choice"
	kindLong   = "long"
)

// acts are the verbs that the board offers for a service, with their fields in order. A verb takes the fields of its payload (package verb).
var acts = map[string][]string{
	protocol.Approve:        {"version", "topic", "comment"},
	protocol.Reject:         {"version", "topic", "comment"},
	protocol.Release:        {"version", "reason"},
	protocol.Pause:          {"channel", "reason"},
	protocol.Resume:         {"channel"},
	protocol.Cancel:         {"version", "channel", "reason"},
	protocol.Retry:          {"version", "channel", "reason"},
	protocol.Rollback:       {"version", "channel", "reason"},
	protocol.Bypass:         {"version", "channel", "condition", "reason"},
	protocol.Pin:            {"channel", "version", "reason"},
	protocol.Unpin:          {"channel", "reason"},
	protocol.RestartService: {"channel", "reason"},
	protocol.Promote:        {"channel", "reason"},
	protocol.Abort:          {"channel", "reason"},
}

// requested is an act: a verb for a service.
type requested struct {
	service connection.ServiceName
	row     *verb.Row
}

func requestedBy(r *http.Request) (requested, error) {
	name := r.PathValue("verb")
	n, err := serviceOf(r)
	if err != nil {
		return requested{}, err
	}
	row := verb.Find(verb.Service(), name)
	if row == nil || acts[name] == nil {
		return requested{}, &pageError{http.StatusNotFound, "There is no such page."}
	}
	return requested{n, row}, nil
}

// sheet shows the page of an act. Its query fills the fields.
func (b *board) sheet(r *http.Request) (page, error) {
	a, err := requestedBy(r)
	if err != nil {
		return page{}, err
	}
	given := r.URL.Query()
	s, known, err := b.readSheet(r.Context(), a, given)
	if err != nil {
		return page{}, err
	}
	if c, err := r.Cookie(nameCookie); err == nil {
		s.By, _ = url.QueryUnescape(c.Value)
	}
	s.fix(given)
	b.judge(r.Context(), &s, a.row, given)
	return b.sheetPage(s, known), nil
}

func (b *board) sheetPage(s sheet, status protocol.Status) page {
	return page{Name: "sheet", Title: s.Title + " · " + statusOf(status.Status).Word, Nav: "services", Content: s, Still: true}
}

// readSheet makes the sheet of an act for the service as it is now.
func (b *board) readSheet(ctx context.Context, a requested, given url.Values) (sheet, protocol.Status, error) {
	name := a.row.Name
	status, err := read.Status(ctx, b.Calls, a.service)
	if err != nil {
		return sheet{}, status, err
	}
	s := sheet{
		Verb: name, Service: a.service, Description: a.row.Description, RequestID: connection.NewRequestID(),
		Title: strings.ToUpper(name[:1]) + name[1:] + " " + strings.TrimSpace(a.service.String()+" "+given.Get("version")),
	}
	for _, each := range acts[name] {
		s.Fields = append(s.Fields, fieldOf(each, given.Get(each), status, slices.Contains(a.row.Required, each) || name == protocol.Bypass && each == "reason"))
	}
	b.addSituation(ctx, &s, status, given)
	return s, status, nil
}

// fix makes the fields that a link gives unchangeable: the sheet is about them.
func (s *sheet) fix(given url.Values) {
	for n := range s.Fields {
		f := &s.Fields[n]
		choice := f.Name == "version" && (s.Verb == protocol.Pin || s.Verb == protocol.Release)
		f.Fixed = given.Get(f.Name) != "" && !f.isText() && !choice
	}
}

func (f field) isText() bool { return f.Kind == kindLong }

// judge says why the service would refuse the act now. The button is disabled if nothing that the person may still fill in can change that.
func (b *board) judge(ctx context.Context, s *sheet, row *verb.Row, given url.Values) {
	isOpen := func(f field) bool { return !f.Fixed && !f.isText() }
	dependsOnPerson := slices.Contains([]string{protocol.Approve, protocol.Reject, protocol.Bypass}, s.Verb)
	switch {
	case b.ReadOnly:
		s.Refused, s.Disabled = "This server only reads.", true
	case dependsOnPerson && s.By == "", slices.ContainsFunc(s.Fields, func(f field) bool { return isOpen(f) && f.Value == "" && (f.Required || f.Name == "version") }):
	default:
		s.Refused = b.refusalNow(ctx, s, row, given)
		s.Disabled = s.Refused != "" && !dependsOnPerson && !slices.ContainsFunc(s.Fields, isOpen)
	}
}

// addSituation adds the channels that an act is about, as they are now, the approval that it is for, and what it changes.
func (b *board) addSituation(ctx context.Context, s *sheet, status protocol.Status, given url.Values) {
	now := b.Now()
	for _, c := range status.Channels {
		if given.Get("channel") == "" || given.Get("channel") == c.Name {
			s.Channels = append(s.Channels, channelView{ChannelStatus: c, Why: explain.WaitsFor(c, now)})
		}
	}
	for _, a := range explain.OpenApprovals([]protocol.Status{status}) {
		if a.Version == given.Get("version") && a.Topic == given.Get("topic") {
			s.Approval = &a
		}
	}
	if v := given.Get("version"); v != "" && (s.Verb == protocol.Approve || s.Verb == protocol.Release) {
		var channels []string
		if s.Approval != nil {
			for _, c := range s.Approval.Channels {
				channels = append(channels, c.Name)
			}
		}
		s.Changes = b.changesOf(ctx, s.Service, v, channels...)
	}
}

// refusalNow returns why a service would refuse an act now; "": it would not, or that is unknown. The effect is discarded.
func (b *board) refusalNow(ctx context.Context, s *sheet, row *verb.Row, given url.Values) string {
	var now state.State
	if row.Do == nil || read.Query(ctx, b.Calls, s.Service, protocol.QueryState, &now) != nil {
		return ""
	}
	by := cmp.Or(s.By, "board")
	fields := fieldsOf(acts[row.Name], given)
	fields["by"], _ = json.Marshal(by) // a text is always valid
	if fields["reason"] == nil {
		fields["reason"] = json.RawMessage(`"?"`) // a person fills it in
	}
	payload, err := json.Marshal(fields)
	if err != nil {
		return ""
	}
	request, err := row.Decode(payload)
	if err != nil {
		return err.Error()
	}
	if _, err := row.Do(&now, request, entities.Who{Name: by}, b.Now()); err != nil {
		return err.Error()
	}
	return ""
}

// fieldsOf returns the given fields of a payload.
func fieldsOf(names []string, given url.Values) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	for _, name := range names {
		if value := strings.TrimSpace(given.Get(name)); value != "" {
			fields[name], _ = json.Marshal(value) // a text is always valid
		}
	}
	return fields
}

// fieldOf returns the input of a field of a payload, with what a service has to choose from.
func fieldOf(name, value string, s protocol.Status, required bool) field {
	f := field{Name: name, Label: strings.ToUpper(name[:1]) + name[1:], Kind: kindText, Value: value, Required: required}
	switch name {
	case "channel":
		f.Kind = kindChoice
		if f.Label = "Release channel"; !required {
			f.Options, f.Help = []string{""}, "Empty: all of them."
		}
		for _, c := range s.Channels {
			f.Options = append(f.Options, c.Name)
		}
	case "topic":
		f.Kind, f.Options = kindChoice, topicsOf(s, value)
	case "condition":
		f.Kind, f.Options = kindChoice, conditionsOf(s, value)
	case "reason", "comment":
		f.Kind, f.Help = kindLong, "It is shown to others, and stays in the history."
	}
	return f
}

func topicsOf(s protocol.Status, given string) (topics []string) {
	for _, a := range explain.OpenApprovals([]protocol.Status{s}) {
		topics = append(topics, a.Topic)
	}
	return withGiven(topics, given)
}

func conditionsOf(s protocol.Status, given string) (ids []string) {
	for _, c := range s.Channels {
		for _, k := range c.Conditions {
			if k.Bypassable {
				ids = append(ids, k.ID)
			}
		}
	}
	return withGiven(ids, given)
}

func withGiven(options []string, given string) []string {
	if given != "" {
		options = append(options, given)
	}
	slices.Sort(options)
	return slices.Compact(options)
}

const (
	nameCookie = "converge-name" // of the person, as they stated it; no proof
	saidCookie = "converge-said" // the answer to the last act, until it is dismissed
	nameKept   = 90 * 24 * time.Hour
	saidKept   = 10 * time.Minute // then it is old
	maxSaid    = 2500             // bytes of JSON: browsers keep cookies of 4096
)

// said is the answer to an act, as the cookie keeps it.
type said struct {
	Service string   `json:"service"`
	Text    string   `json:"text"`
	Next    []string `json:"next,omitempty"`
}

// perform carries out the act of a form, and shows the service with the answer; or the form again, with why it was refused.
func (b *board) perform(w http.ResponseWriter, r *http.Request) {
	defer b.Overview.Open()()
	a, err := requestedBy(r)
	if err == nil && r.ParseForm() != nil {
		err = &pageError{http.StatusBadRequest, "The form cannot be read."}
	}
	if err != nil {
		p, status := b.problem(err)
		b.write(w, p, status)
		return
	}
	by, requestID := strings.TrimSpace(r.PostForm.Get("by")), cmp.Or(r.PostForm.Get("requestId"), connection.NewRequestID())
	if b.ReadOnly {
		b.writeRefused(w, r, a, "This server only reads.", by, requestID, http.StatusForbidden)
		return
	}
	fields := fieldsOf(acts[a.row.Name], r.PostForm)
	fields["by"], _ = json.Marshal(by) // a text is always valid
	answer, err := act.Perform(r.Context(), b.Calls, act.Request{
		Row: a.row, WorkflowID: read.WorkflowID(r.Context(), b.Calls, a.service), Fields: fields, RequestID: requestID,
	})
	if err != nil {
		var refused *connection.RefusedError
		if errors.As(err, &refused) {
			requestID = connection.NewRequestID() // the next attempt is another act
		}
		b.writeRefused(w, r, a, refusal(err), by, requestID, http.StatusConflict)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: nameCookie, Value: url.QueryEscape(by), Path: "/", MaxAge: int(nameKept.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	setSaid(w, r, saidOf(a.service, a.row.Name, answer))
	http.Redirect(w, r, servicePath(a.service), http.StatusSeeOther)
}

// writeRefused sends a form again, as it was filled in, with why the act was not carried out.
func (b *board) writeRefused(w http.ResponseWriter, r *http.Request, a requested, why, by, requestID string, status int) {
	s, known, err := b.readSheet(r.Context(), a, r.PostForm)
	if err != nil {
		p, code := b.problem(err)
		b.write(w, p, code)
		return
	}
	s.By, s.RequestID, s.Refused, s.Disabled = by, requestID, why, b.ReadOnly
	b.write(w, b.sheetPage(s, known), status)
}

// refusal is why an act was not carried out, for the person who tried.
func refusal(err error) string {
	var refused *connection.RefusedError
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return err.Error()
}

// saidOf is the answer to an act in words.
func saidOf(n connection.ServiceName, name string, answer json.RawMessage) said {
	var any struct {
		Message, ID, Version string
		Next                 []string
	}
	_ = json.Unmarshal(answer, &any) // an answer of another form has no text
	text := any.Message
	if text == "" && any.ID != "" {
		text = fmt.Sprintf("%s %s is release %s", n, any.Version, any.ID)
	}
	return said{Service: n.String(), Text: cmp.Or(text, name+" was carried out"), Next: any.Next}
}

func servicePath(n connection.ServiceName) string {
	return "/services/" + n.Application + "/" + n.Service
}

// setSaid keeps an answer for the page that follows.
func setSaid(w http.ResponseWriter, r *http.Request, s said) {
	s.Text = entities.Clip(s.Text, maxSaid/2)
	data, err := json.Marshal(s)
	if len(data) > maxSaid {
		s.Next = nil
		data, err = json.Marshal(s)
	}
	if err != nil {
		return
	}
	http.SetCookie(w, &http.Cookie{Name: saidCookie, Value: base64.RawURLEncoding.EncodeToString(data), Path: "/", MaxAge: int(saidKept.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
}

// takeSaid returns the answer that the page of a service shows, until it is dismissed.
func takeSaid(r *http.Request, n connection.ServiceName) *said {
	c, err := r.Cookie(saidCookie)
	if err != nil {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	var s said
	if err != nil || json.Unmarshal(text, &s) != nil || s.Service != n.String() {
		return nil
	}
	return &s
}

// dismiss forgets the answer to the last act.
func (b *board) dismiss(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: saidCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	http.Redirect(w, r, servicePath(connection.ServiceName{Application: r.PathValue("application"), Service: r.PathValue("service")}), http.StatusSeeOther)
}
