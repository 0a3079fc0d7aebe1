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
	"github.com/converge-engine/converge/client/serve/session"
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
	Known       bool   // By is signed in
	Signs       bool   // the issuer signs the act
	Release     string // id of the release that the page shows, which the act is for
	who         entities.Who
	Refused     string // why it would be, or was, refused
	Answer      string // what the service would answer now; "": that is not known
	Disabled    bool
	Channels    []channelView // those that the act is about
	Approval    *explain.OpenApproval
	Changes     *changes // nil: the act is not about a version
	Compare     []link   // instead: pages with what versions change, which take a while
	Open        bool     // the person may fill in more than texts
}

// field is an input of a sheet.
type field struct {
	Name, Label, Kind, Value, Help string
	None                           string // what an empty option is called
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
	protocol.Release:        {"version", "reason", parametersField},
	protocol.Pause:          {"channel", "reason"},
	protocol.Resume:         {"channel"},
	protocol.Cancel:         {"version", "channel", "reason"},
	protocol.Retry:          {"version", "channel", "reason"},
	protocol.Rollback:       {"version", "channel", "reason"},
	protocol.Bypass:         {"version", "channel", "condition", "reason"},
	protocol.Pin:            {"channel", "version", "reason"},
	protocol.Unpin:          {"channel", "reason"},
	protocol.RestartService: {"channel", "reason"},
	protocol.Adopt:          {"channel", "reason"},
	protocol.Return:         {"channel", "reason"},
	protocol.Promote:        {"channel", "reason"},
	protocol.Abort:          {"channel", "reason"},
}

// requiredHere are fields that the board requires, where a payload may have others instead.
var requiredHere = map[string]string{protocol.Bypass: "reason", protocol.Release: "version", protocol.Cancel: "version"}

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
	given := formOf(a.row.Name, r.URL.Query())
	s, known, now, err := b.readSheet(r.Context(), a, given)
	if err != nil {
		return page{}, err
	}
	b.addPerson(r, &s, now, given)
	s.fix(func(name string) bool { return given.Get(name) != "" })
	t := b.judge(&s, a.row, now, given)
	if !s.Disabled {
		b.addChanges(r.Context(), &s, t, given)
	}
	return b.sheetPage(s, known), nil
}

// titleOf is the title of a sheet, and the text of its button: "Pin shop/web v2 in production".
func titleOf(name string, n connection.ServiceName, given url.Values) string {
	words := []string{strings.ToUpper(name[:1]) + name[1:]}
	switch {
	case name == protocol.Rollback:
		words[0] = "Roll back"
	case name == protocol.Bypass && given.Get("condition") != "":
		words = append(words, given.Get("condition"), "for")
	case name == protocol.Cancel && given.Get("version") == "":
		words = append(words, "a release of")
	}
	words = append(words, n.String())
	if version := given.Get("version"); version != "" {
		words = append(words, version)
	}
	if channel := given.Get("channel"); channel != "" {
		words = append(words, "in", channel)
	}
	return strings.Join(words, " ")
}

func (b *board) sheetPage(s sheet, status protocol.Status) page {
	return page{
		Name: "sheet", Title: s.Title + " · " + statusOf(status.Status).Word, Nav: "services", Content: s, Still: true,
		Watch: []string{s.Service.String()}, Compare: servicePath(s.Service) + "/state", State: digestOf(status),
	}
}

// digestOf is a digest of the part of a status that a sheet shows.
func digestOf(s protocol.Status) string {
	type shown struct {
		Name, Status, Current, Target, Desired string
		Conditions                             []string
	}
	var all []shown
	for _, c := range s.Channels {
		each := shown{Name: c.Name, Status: c.Status, Current: c.Current, Target: c.Target, Desired: c.Desired}
		for _, k := range c.Conditions {
			each.Conditions = append(each.Conditions, strings.Join(append([]string{k.ID, k.Verdict, k.Code}, k.ApprovedBy...), " "))
		}
		all = append(all, each)
	}
	return entities.DigestOf(all)
}

// stateOfService answers the digest of a service as it is now, as text.
func (b *board) stateOfService(w http.ResponseWriter, r *http.Request) {
	n, err := serviceOf(r)
	if err == nil {
		err = b.readable(r)
	}
	var status protocol.Status
	if err == nil {
		status, err = read.Status(r.Context(), b.Calls, n)
	}
	if err != nil {
		p, code := b.problem(err)
		http.Error(w, p.Title, code)
		return
	}
	fmt.Fprint(w, digestOf(status))
}

// readSheet makes the sheet of an act for the service as it is now.
func (b *board) readSheet(ctx context.Context, a requested, given url.Values) (sheet, protocol.Status, state.State, error) {
	name := a.row.Name
	var now state.State
	status, err := read.Status(ctx, b.Calls, a.service)
	if err != nil {
		return sheet{}, status, now, err
	}
	_ = read.Query(ctx, b.Calls, a.service, protocol.QueryState, &now) // a service that cannot be judged now can be acted on
	s := sheet{
		Verb: name, Service: a.service, Description: a.row.Description, RequestID: connection.NewRequestID(),
		Title: titleOf(name, a.service, given),
	}
	for _, each := range acts[name] {
		if each == parametersField {
			s.Fields = append(s.Fields, parameterFields(now.Spec, given)...)
			continue
		}
		s.Fields = append(s.Fields, fieldOf(each, given.Get(each), status, slices.Contains(a.row.Required, each) || requiredHere[name] == each))
	}
	b.addSituation(&s, status, given)
	return s, status, now, nil
}

// fix makes fields unchangeable that a link gives: the sheet is about them.
func (s *sheet) fix(given func(name string) bool) {
	for n := range s.Fields {
		f := &s.Fields[n]
		choice := f.Name == "version" && (s.Verb == protocol.Pin || s.Verb == protocol.Release)
		f.Fixed = given(f.Name) && !f.isText() && !choice
	}
}

func (f field) isText() bool { return f.Kind == kindLong }

// judge says why the service would refuse the act now, or what it would answer. The button is disabled if nothing that the person may still fill in
// can change a refusal.
func (b *board) judge(s *sheet, row *verb.Row, now state.State, given url.Values) (t trial) {
	isOpen := func(f field) bool { return !f.Fixed && !f.isText() }
	closed := s.closed(&now, given)
	dependsOnPerson := slices.Contains([]string{protocol.Approve, protocol.Reject, protocol.Bypass}, s.Verb)
	switch {
	case b.ReadOnly:
		s.Refused, s.Disabled = "This server only reads.", true
	case closed != "":
		s.Refused, s.Disabled = closed, true
	case dependsOnPerson && s.By == "", slices.ContainsFunc(s.Fields, func(f field) bool { return isOpen(f) && f.Value == "" && f.Required }):
	default:
		t = s.try(row, now, given, b.Now())
		s.Refused, s.Answer, s.Open = t.Refused, t.Answer, slices.ContainsFunc(s.Fields, isOpen)
		s.Disabled = s.Refused != "" && !dependsOnPerson && !slices.ContainsFunc(s.Fields, isOpen)
	}
	return t
}

// compareLink leads to the page of what a version changes.
func compareLink(n connection.ServiceName, version string) link {
	return link{Text: "What " + version + " changes", URL: servicePath(n) + "/changes?" + url.Values{"version": {version}}.Encode()}
}

// addChanges adds what an approval or a release changes. Other acts may be urgent: their sheets lead to a page with that, and wait for no runtime.
func (b *board) addChanges(ctx context.Context, s *sheet, t trial, given url.Values) {
	version := given.Get("version")
	switch {
	case s.Verb == protocol.Release && version != "":
		s.Changes = b.changesOf(ctx, s.Service, version)
	case s.Verb == protocol.Approve && s.Approval != nil:
		var channels []string
		for _, c := range s.Approval.Channels {
			channels = append(channels, c.Name)
		}
		s.Changes = b.changesOf(ctx, s.Service, version, channels...)
	default:
		for _, version := range s.versionsAfter(t, version) {
			s.Compare = append(s.Compare, compareLink(s.Service, version))
		}
	}
}

// followsApproval says what one more approval does.
func followsApproval(a *explain.OpenApproval) string {
	switch missing := max(a.Need, 1) - len(a.ApprovedBy); {
	case missing == 2:
		return "After one more, another one is needed."
	case missing > 2:
		return fmt.Sprintf("After one more, %d others are needed.", missing-1)
	}
	text := "One more is the last that is needed:"
	for n, c := range a.Channels {
		if n > 0 {
			text += ";"
		}
		if text += " " + a.Version; len(c.Waits) > 0 {
			text += " then still waits in " + c.Name + " for " + strings.Join(c.Waits, ", ")
		} else {
			text += " then enters " + c.Name
		}
	}
	return text + "."
}

// closed says why no person can give an approval, or reject; "": some may, or that is unknown.
func (s *sheet) closed(now *state.State, given url.Values) string {
	if now.Spec == nil || s.Verb != protocol.Approve && s.Verb != protocol.Reject || given.Get("version") == "" || given.Get("topic") == "" || s.Approval != nil {
		return ""
	}
	if err := now.CheckOpen(given.Get("version"), given.Get("topic")); err != nil {
		return err.Error()
	}
	return ""
}

// addSituation adds the channels that an act is about, as they are now, and the approval that it is for.
func (b *board) addSituation(s *sheet, status protocol.Status, given url.Values) {
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
}

// fieldsOf returns the given fields of a payload.
func fieldsOf(names []string, given url.Values) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	if parameters := parametersOf(given); len(parameters) > 0 && slices.Contains(names, parametersField) {
		fields[parametersField], _ = json.Marshal(parameters) // they are valid
	}
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
			f.Options, f.None = []string{""}, "all"
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
	Service string    `json:"service"`
	Text    string    `json:"text"`
	Next    []string  `json:"next,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// addPerson adds who acts: the person who is signed in, or else the name that was stated last time.
func (b *board) addPerson(r *http.Request, s *sheet, now state.State, given url.Values) {
	if b.Sessions == nil {
		if c, err := r.Cookie(nameCookie); err == nil && s.By == "" {
			s.By, _ = url.QueryUnescape(c.Value)
		}
		return
	}
	who, known := session.From(r.Context())
	s.By, s.Known, s.who = who.Name, known, who
	s.Signs = now.Spec != nil && now.Spec.Identity != nil
	if r, err := s.shownRelease(&now, given); err == nil && r != nil {
		s.Release = r.ID
	}
}

// shownRelease returns the release that an approval, a rejection or a bypass is for, as the service is now; nil: the act names none.
func (s *sheet) shownRelease(now *state.State, given url.Values) (*state.Release, error) {
	switch version := given.Get("version"); {
	case now.Spec == nil || version == "":
	case s.Verb == protocol.Approve, s.Verb == protocol.Reject:
		return now.ToApprove(version, entities.Approval{Topic: given.Get("topic"), Who: s.who, Reject: s.Verb == protocol.Reject})
	case s.Verb == protocol.Bypass:
		return now.FindOpen(version, given.Get("channel"))
	}
	return nil, nil
}

// intended is an act that a person has decided on. While the issuer signs it, a cookie of the browser keeps it.
type intended struct {
	Service   connection.ServiceName `json:"service"`
	Verb      string                 `json:"verb"`
	Form      url.Values             `json:"form"`            // the fields, as they were filled in
	Fixed     []string               `json:"fixed,omitempty"` // those that the sheet was about
	By        string                 `json:"by"`
	RequestID string                 `json:"requestId"`
	Release   string                 `json:"release,omitempty"`
}

// formOf returns the fields of an act that a form has.
func formOf(verb string, form url.Values) url.Values {
	given := url.Values{}
	for name, values := range form {
		if slices.Contains(acts[verb], name) || strings.HasPrefix(name, parameterPrefix) {
			given[name] = values
		}
	}
	return given
}

// request is the act for its receiver. The release is named by its id, so that the act is for the one that the page showed.
func (b *board) request(ctx context.Context, i intended, row *verb.Row, token string) act.Request {
	fields := fieldsOf(acts[i.Verb], i.Form)
	if i.Release != "" && fields["version"] != nil {
		fields["version"], _ = json.Marshal(entities.IDPrefix + i.Release) // a text is always valid
	}
	if i.By != "" {
		fields["by"], _ = json.Marshal(i.By)
	}
	return act.Request{Row: row, WorkflowID: read.WorkflowID(ctx, b.own, i.Service), Fields: fields, RequestID: i.RequestID, Token: token}
}

// perform takes the act of a form: it is carried out, or signed by the issuer first.
func (b *board) perform(w http.ResponseWriter, r *http.Request) {
	defer b.Overview.Open()()
	a, err := requestedBy(r)
	if err == nil && r.ParseForm() != nil {
		err = &pageError{http.StatusBadRequest, "The form cannot be read."}
	}
	if err != nil {
		p, status := b.problem(err)
		b.write(w, r, p, status)
		return
	}
	i := intended{
		Service: a.service, Verb: a.row.Name, Form: formOf(a.row.Name, r.PostForm), Fixed: r.PostForm["fixed"], By: strings.TrimSpace(r.PostForm.Get("by")),
		RequestID: cmp.Or(r.PostForm.Get("requestId"), connection.NewRequestID()), Release: r.PostForm.Get("release"),
	}
	if b.ReadOnly {
		b.writeRefused(w, r, a, i, "This server only reads.", http.StatusForbidden)
		return
	}
	if b.Sessions == nil && i.By == "" {
		b.writeRefused(w, r, a, i, "Write your name.", http.StatusConflict)
		return
	}
	if b.Sessions == nil {
		b.carryOut(w, r, a, i, "")
		return
	}
	who, known := session.From(r.Context())
	if i.By = who.Name; !known { // the issuer says who it is, and nothing is shown before
		if b.sign(w, r, a, i) != nil {
			b.writeSignedOut(w, r, "")
		}
		return
	}
	identity, err := b.identity(r.Context(), a.service)
	switch {
	case err != nil:
		b.writeRefused(w, r, a, i, refusal(err), http.StatusConflict)
	case identity == nil:
		b.carryOut(w, r, a, i, "")
	default:
		if err := b.sign(w, r, a, i); err != nil {
			b.writeRefused(w, r, a, i, err.Error(), http.StatusConflict)
		}
	}
}

// identity is how callers of a service prove who they are; nil: they do not.
func (b *board) identity(ctx context.Context, n connection.ServiceName) (*entities.Identity, error) {
	var now state.State
	if err := read.Query(ctx, b.Calls, n, protocol.QueryState, &now); err != nil || now.Spec == nil || now.Spec.Identity == nil {
		return nil, err
	}
	if issuer := now.Spec.Identity.Issuer; issuer != b.Sessions.Issuer {
		return nil, fmt.Errorf("people of %s prove who they are at %s; this board knows %s only; expected converge with a token", n.Application, issuer, b.Sessions.Issuer)
	}
	return now.Spec.Identity, nil
}

// sign sends the browser to the issuer for a token for the act.
func (b *board) sign(w http.ResponseWriter, r *http.Request, a requested, i intended) error {
	_, namespace := b.Calls.Temporal()
	nonce, err := b.request(r.Context(), i, a.row, "").Nonce(namespace)
	if err != nil {
		return err
	}
	data, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return b.Sessions.Sign(w, r, session.Act{Nonce: nonce, Data: data})
}

// signed carries out an act that the issuer has signed. Where nothing is proven, the issuer has said who acts, as at a sign-in.
func (b *board) signed(w http.ResponseWriter, r *http.Request, s session.Signed) {
	defer b.Overview.Open()()
	var i intended
	err := json.Unmarshal(s.Data, &i)
	a := requested{i.Service, verb.Find(verb.Service(), i.Verb)}
	switch {
	case err != nil || a.row == nil: // of another version of this server
		p, status := b.problem(&pageError{http.StatusBadRequest, "The act cannot be read. Nothing was done."})
		b.write(w, r, p, status)
		return
	case b.ReadOnly: // begun on another server
		b.writeRefused(w, r, a, i, "This server only reads.", http.StatusForbidden)
		return
	case s.Refused != "":
		b.writeRefused(w, r, a, i, "Nothing was done: "+s.Refused+".", http.StatusForbidden)
		return
	}
	identity, err := b.identity(r.Context(), a.service)
	switch {
	case err != nil:
		b.writeRefused(w, r, a, i, refusal(err), http.StatusConflict)
	case identity == nil:
		i.By = s.Who.Name
		b.carryOut(w, r, a, i, "")
	default:
		b.carryOut(w, r, a, i, s.Token)
	}
}

// carryOut carries out an act, and shows the service with the answer; or the form again, with why it was refused.
func (b *board) carryOut(w http.ResponseWriter, r *http.Request, a requested, i intended, token string) {
	answer, err := act.Perform(r.Context(), b.Calls, b.request(r.Context(), i, a.row, token))
	if err != nil {
		var refused *connection.RefusedError
		if errors.As(err, &refused) {
			i.RequestID = connection.NewRequestID() // the next attempt is another act
		}
		b.writeRefused(w, r, a, i, refusal(err), http.StatusConflict)
		return
	}
	if b.Sessions == nil {
		b.setCookie(w, r, nameCookie, url.QueryEscape(i.By), nameKept)
	}
	said := saidOf(a.service, a.row.Name, answer)
	said.At = b.Now()
	b.setSaid(w, r, said)
	http.Redirect(w, r, servicePath(a.service), http.StatusSeeOther)
}

// setCookie sets a cookie that no script reads. It is sent when the issuer sends the browser back, too; nothing is done because of one.
func (b *board) setCookie(w http.ResponseWriter, r *http.Request, name, value string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil})
}

// writeSignedOut is the answer to a form of an unknown sender: it shows nothing of the service.
func (b *board) writeSignedOut(w http.ResponseWriter, r *http.Request, why string) {
	text := strings.TrimSpace(why + " You are signed out. Sign in on another tab, and send the form again: what you typed is still in it.")
	b.write(w, r, page{Name: "problem", Title: "Signed out", Content: text, Still: true}, http.StatusUnauthorized)
}

// writeRefused sends a form again, as it was filled in, with why the act was not carried out.
func (b *board) writeRefused(w http.ResponseWriter, r *http.Request, a requested, i intended, why string, status int) {
	if _, known := session.From(r.Context()); b.Sessions != nil && !known {
		b.writeSignedOut(w, r, why)
		return
	}
	s, known, now, err := b.readSheet(r.Context(), a, i.Form)
	if err != nil {
		p, code := b.problem(err)
		b.write(w, r, p, code)
		return
	}
	s.By = i.By
	b.addPerson(r, &s, now, i.Form)
	s.RequestID, s.Refused, s.Disabled = i.RequestID, why, b.ReadOnly
	s.Release = cmp.Or(i.Release, s.Release)
	if version := i.Form.Get("version"); version != "" {
		s.Compare = []link{compareLink(a.service, version)}
	}
	s.fix(func(name string) bool { return slices.Contains(i.Fixed, name) && i.Form.Get(name) != "" })
	b.write(w, r, b.sheetPage(s, known), status)
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
func (b *board) setSaid(w http.ResponseWriter, r *http.Request, s said) {
	s.Text = entities.Clip(s.Text, maxSaid/2)
	data, err := json.Marshal(s)
	if len(data) > maxSaid {
		s.Next = nil
		data, err = json.Marshal(s)
	}
	if err != nil {
		return
	}
	b.setCookie(w, r, saidCookie, base64.RawURLEncoding.EncodeToString(data), saidKept)
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
	b.setCookie(w, r, saidCookie, "", -time.Second)
	http.Redirect(w, r, servicePath(connection.ServiceName{Application: r.PathValue("application"), Service: r.PathValue("service")}), http.StatusSeeOther)
}
