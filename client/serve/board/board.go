// Package board is the pages of an installation for people: what waits for them, what runs where, and why it does not move. Pages are made on
// the server, and work without script; with it they follow what changes (static/board.js).
package board

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/worker/deployment"
)

// Options are those of the board.
type Options struct {
	Calls    connection.API
	Stores   read.Store
	Overview *overview.Overview
	Now      func() time.Time
	ReadOnly bool
	Examine  func(context.Context) deployment.Report // the installation, from outside; nil: its page has no report
	Previews *preview.Served                         // nil: the server only reads
	Readers  *access.Readers                         // nil: everybody may read everything
	Sessions *session.Sessions                       // nil: people do not sign in, and state their names
}

// contentPolicy lets a page use its own script, styles and images, and nothing else. Chromium applies form-action to where a form leads in the
// end, which is the issuer.
func (b *board) contentPolicy() string {
	forms := "'self'"
	if b.Sessions != nil {
		forms += " " + b.Sessions.Origin()
	}
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action " + forms + "; frame-ancestors 'none'; base-uri 'none'"
}

//go:embed pages static
var files embed.FS

type board struct {
	Options
	own       connection.API                // of the server, for any sender
	pages     map[string]*template.Template // by name
	calendars chan struct{}                 // a place for each that is computed
	examined  examined
}

// Mount adds the pages to a mux.
func Mount(mux *http.ServeMux, o Options) {
	own := o.Calls
	o.Calls = o.Readers.Limit(own)
	b := &board{Options: o, own: own, pages: map[string]*template.Template{}, calendars: make(chan struct{}, maxCalendars)}
	layout := template.Must(template.New("layout").Funcs(functions(o.Now)).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	for _, name := range []string{"waiting", "services", "service", "sheet", "changes", "history", "timeline", "calendar", "fleet", "installation", "logs", "application", "plan", "diff", "problem"} {
		b.pages[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "pages/"+name+".html"))
	}
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	mux.Handle("GET /static/", http.StripPrefix("/static/", cached(http.FileServerFS(static))))
	b.handle(mux, "GET /{$}", b.waiting)
	b.handle(mux, "GET /services", b.services)
	b.handle(mux, "GET /installation", b.installation)
	b.handle(mux, "GET /applications/{application}", b.application)
	b.handle(mux, "GET /applications/{application}/plans/{channel}", b.planPage)
	b.handle(mux, "GET /applications/{application}/diff", b.diff)
	b.handle(mux, "GET /services/{application}/{service}", b.service)
	b.handle(mux, "GET /services/{application}/{service}/changes", b.changesPage)
	b.handle(mux, "GET /services/{application}/{service}/history", b.history)
	b.handle(mux, "GET /services/{application}/{service}/timeline", b.timeline)
	b.handle(mux, "GET /services/{application}/{service}/calendar", b.calendar)
	b.handle(mux, "GET /services/{application}/{service}/fleet/{channel}", b.fleet)
	b.handle(mux, "GET /services/{application}/{service}/logs", b.logs)
	b.handle(mux, "GET /services/{application}/{service}/act/{verb}", b.sheet)
	mux.HandleFunc("GET /services/{application}/{service}/state", b.stateOfService)
	mux.HandleFunc("POST /services/{application}/{service}/act/{verb}", b.perform)
	mux.HandleFunc("POST /services/{application}/{service}/dismiss", b.dismiss)
	if b.Sessions != nil {
		b.Sessions.Mount(mux, session.Pages{Finish: b.signed, Problem: func(w http.ResponseWriter, r *http.Request, status int, text string) {
			b.write(w, r, page{Name: "problem", Title: http.StatusText(status), Content: text, Still: true}, status)
		}})
	}
	b.handle(mux, "/", func(*http.Request) (page, error) {
		return page{}, &pageError{http.StatusNotFound, "There is no such page."}
	})
}

// cached lets browsers keep static files until they ask whether they have changed.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}

// page is what a page shows: its template, its title, and the content of the template.
type page struct {
	Name    string
	Title   string
	Nav     string   // the entry of the navigation that it belongs to
	Watch   []string // services; the page changes when one of them does
	Lists   bool     // the page comes from the overview, and changes when any service does
	After   overview.Revision
	Content any
	AsOf    time.Time
	Moves   bool   // the page shows work in progress, and changes by more than services
	Still   bool   // the page does not change while a person fills it in
	Compare string // the path of the state of its subject, which a page that is still compares with State
	State   string
	Known   string // how much is known, if that is not everything
	Who     string // who is signed in
}

// pageError is why there is no page.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

// handle adds a page.
func (b *board) handle(mux *http.ServeMux, pattern string, make func(*http.Request) (page, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		defer b.Overview.Open()()
		state, _ := b.Overview.State() // before the page is made, so that no change is between it and the stream
		var p page
		err := b.readable(r)
		if err == nil {
			p, err = make(r)
		}
		status := http.StatusOK
		if err != nil {
			p, status = b.problem(err)
		}
		p.After = state.Revision
		b.write(w, r, p, status)
	})
}

// readable returns why the sender of a request gets no page of the application of its path.
func (b *board) readable(r *http.Request) error {
	if application := r.PathValue("application"); application != "" {
		return b.Readers.Check(r.Context(), application)
	}
	return nil
}

// problem is the page for an error.
func (b *board) problem(err error) (page, int) {
	status, title := http.StatusInternalServerError, "This did not work"
	var known *pageError
	var unread *read.StoreError
	switch {
	case errors.As(err, &known):
		status, title = known.status, http.StatusText(known.status)
	case errors.Is(err, connection.ErrNotFound), errors.As(err, new(*access.HiddenError)):
		status, title = http.StatusNotFound, "Not found"
	case errors.As(err, &unread): // no fault that passes: the page is not read again and again
		status, title = http.StatusConflict, "The store is not read here"
	case connection.Transient(err), errors.Is(err, context.DeadlineExceeded):
		status, title = http.StatusServiceUnavailable, "No answer"
	}
	return page{Name: "problem", Title: title, Content: err.Error()}, status
}

// write sends a page. A page whose template fails is an error as a whole: half a page would look complete.
func (b *board) write(w http.ResponseWriter, r *http.Request, p page, status int) {
	if who, known := session.From(r.Context()); known {
		p.Who = who.Name
	}
	state, _ := b.Overview.State()
	p.AsOf = b.Now()
	switch { // other pages do not come from the overview
	case !p.Lists:
	case state.Problem != nil && !state.GoodAt.IsZero():
		p.AsOf, p.Known = state.GoodAt, "Temporal does not answer, so this may be old: "+state.Problem.Error()
	case !state.Complete:
		p.Known = "Not all services are known yet; the others are being read."
	}
	var out bytes.Buffer
	if err := b.pages[p.Name].ExecuteTemplate(&out, "layout", p); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", b.contentPolicy())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the client is gone
}

// functions are those that templates may call.
func functions(now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"status":  func(code any) statusView { return statusOf(fmt.Sprint(code)) },
		"web":     isWeb,
		"command": func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "converge ") },
		"age":     func(t time.Time) string { return explain.Duration(now().Sub(t)) },
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") },
		"visible": entities.Visible,
		"lines":   entities.VisibleLines,
		"who":     whoText,
		"follows": followsApproval,
		"plain":   func(text string) string { return entities.Visible(strings.ReplaceAll(text, "`", "")) }, // as in the Temporal UI, which shows Markdown
	}
}

// whoText names who acted.
func whoText(w *entities.Who) string {
	if w == nil {
		return "Converge"
	}
	return explain.Who(*w)
}

// isWeb reports whether a link from outside leads to a web page.
func isWeb(link string) bool {
	u, err := url.Parse(link)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// link is a link to the sheet of an act.
type link struct {
	Text, URL string
	Main      bool // what people are most likely to do next
}

// statusView is a status for people: never by colour alone.
type statusView struct{ Glyph, Word, Tone string }

// statusOf returns how a status is shown. An unknown one, of a newer version, is shown as it is.
func statusOf(code string) statusView {
	view, ok := statuses[entities.Status(code)]
	if !ok {
		view = statusView{Glyph: "?", Word: code, Tone: "quiet"}
	}
	return view
}

var statuses = map[entities.Status]statusView{
	entities.StatusConverged:      {Glyph: "✓", Word: "converged", Tone: "good"},
	entities.StatusConverging:     {Glyph: "↻", Word: "converging", Tone: "busy"},
	entities.StatusProgressing:    {Glyph: "↻", Word: "progressing", Tone: "busy"},
	entities.StatusPreconditions:  {Glyph: "…", Word: "waits", Tone: "busy"},
	entities.StatusManualApproval: {Glyph: "☐", Word: "waits for approval", Tone: "person"},
	entities.StatusPaused:         {Glyph: "‖", Word: "paused", Tone: "person"},
	entities.StatusSuspended:      {Glyph: "‖", Word: "waits for a person", Tone: "person"},
	entities.StatusBlocked:        {Glyph: "⊘", Word: "blocked", Tone: "bad"},
	entities.StatusUnknown:        {Glyph: "?", Word: "unknown", Tone: "bad"},
	entities.StatusDegraded:       {Glyph: "!", Word: "degraded", Tone: "bad"},
	entities.StatusFailed:         {Glyph: "✗", Word: "failed", Tone: "bad"},
	entities.StatusFailedRollback: {Glyph: "✗", Word: "rollback failed", Tone: "bad"},
	entities.StatusRollingBack:    {Glyph: "↶", Word: "rolling back", Tone: "bad"},
	entities.StatusRolledBack:     {Glyph: "↶", Word: "rolled back", Tone: "bad"},
	entities.StatusCancelled:      {Glyph: "⊘", Word: "cancelled", Tone: "bad"},
	entities.StatusDeleted:        {Glyph: "∅", Word: "deleted", Tone: "quiet"},
	entities.StatusOrphaned:       {Glyph: "∅", Word: "no longer declared", Tone: "quiet"},
	"SUCCEEDED":                   {Glyph: "✓", Word: "ready", Tone: "good"}, // of an object, as are PENDING and FAILED
	"PENDING":                     {Glyph: "↻", Word: "pending", Tone: "busy"},
	entities.StatusUnmanaged:      {Glyph: "–", Word: "unmanaged", Tone: "quiet"},
}
