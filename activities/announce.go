package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes/secret"
)

// EventSchema is the schema of a webhook's body.
const EventSchema = "converge.event/v1"

// Formats of a notification.
const (
	formatJSON  = "json"
	formatSlack = "slack"
)

// hookTimeout limits one call of a webhook.
const hookTimeout = 10 * time.Second

// Event is the body of a webhook call.
type Event struct {
	Schema      string              `json:"schema"` // EventSchema
	Application string              `json:"application"`
	Service     string              `json:"service,omitempty"`
	Entry       entities.AuditEntry `json:"line"`
	// Next are the commands that a person can use now.
	Next []string `json:"next,omitempty"`
	// Board is the address of the page of the service, or of the application, on the board.
	Board string `json:"board,omitempty"`
	// Commits are the newest that the release of the entry brings to its channel; none: none are known.
	Commits *protocol.ReleaseCommits `json:"commits,omitempty"`
}

// announcedCommits is the maximum number of commits of a release in a webhook call.
const announcedCommits = 100

// releaseCommits returns the commits of the release that an audit entry is about. If they are not available, the entry is announced without
// them.
func (a *Activities) releaseCommits(ctx context.Context, r protocol.AnnounceRequest) *protocol.ReleaseCommits {
	if r.Incarnation == 0 || r.Entry.Channel == "" {
		return nil
	}
	b, err := a.Store.Brought(ctx, r.Application, r.Since, r.Incarnation)
	if err != nil || b.Count() == 0 {
		return nil
	}
	b.Channel, b.Version = r.Entry.Channel, r.Entry.Version
	b = b.Bounded(announcedCommits)
	return &b
}

// Announce sends one audit entry to webhooks, to each at least once. It returns an error if some failed, and the server retries. The
// heartbeat has the webhooks that succeeded, so an unavailable one does not cause duplicates at the others.
func (a *Activities) Announce(ctx context.Context, r protocol.AnnounceRequest) error {
	var announced []string
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &announced) // unreadable: send to all again
	}
	alreadyAnnounced := announced
	failed := make([]error, len(r.Notifications))
	var mu sync.Mutex
	var calls sync.WaitGroup
	for i, n := range r.Notifications {
		if slices.Contains(alreadyAnnounced, n.Name) {
			continue
		}
		calls.Go(func() {
			err := a.post(ctx, r, n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[i] = fmt.Errorf("notification %s: %w", n.Name, err)
				return
			}
			announced = append(slices.Clone(announced), n.Name)
			activity.RecordHeartbeat(ctx, announced)
		})
	}
	calls.Wait()
	return errors.Join(failed...)
}

// post calls one webhook. Its URL may be a secret, so it is removed from errors.
func (a *Activities) post(ctx context.Context, r protocol.AnnounceRequest, n entities.Notification) error {
	address, err := secret.Resolve(ctx, a.Commands.Secrets, "its url", n.URL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	body, err := eventBody(r, a.releaseCommits(ctx, r), a.boardLink(ctx, r), n.Format)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(address), bytes.NewReader(body))
	if err != nil || request.URL.Host == "" {
		return errors.New("invalid url; expected https://host/path")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "converge")
	request.Header.Set("Idempotency-Key", eventKey(r))
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		var urlErr *url.Error
		if errors.As(err, &urlErr) { // its text contains the URL
			err = urlErr.Err
		}
		return fmt.Errorf("not delivered: %w", err)
	}
	_ = response.Body.Close() // the response is ignored
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// eventKey is the same for each announcement of an entry. A service that was removed and started again counts from one again, so the key
// includes the time.
func eventKey(r protocol.AnnounceRequest) string {
	return fmt.Sprintf("%s/%s/%d@%s", r.Application, r.Service, r.Entry.N, r.Entry.At.UTC().Format(time.RFC3339Nano))
}

// boardLink returns the address of the page of the entry on the board, or "". A notification does not fail for want of a link.
func (a *Activities) boardLink(ctx context.Context, r protocol.AnnounceRequest) string {
	rules, err := a.Store.Rules(ctx)
	switch {
	case err != nil || rules.Board == "":
		return ""
	case r.Service == "":
		return entities.BoardPage(rules.Board, "applications", r.Application)
	}
	return entities.BoardLink(rules.Board, r.Application, r.Service)
}

func eventBody(r protocol.AnnounceRequest, commits *protocol.ReleaseCommits, board, format string) ([]byte, error) {
	switch format {
	case "", formatJSON:
		return json.Marshal(Event{Schema: EventSchema, Application: r.Application, Service: r.Service, Entry: r.Entry, Next: r.Next, Board: board, Commits: commits})
	case formatSlack:
		return json.Marshal(map[string]string{"text": chatText(r, board)})
	}
	return nil, fmt.Errorf("unknown format %q; expected %s or %s", format, formatJSON, formatSlack)
}

// chatEscapes escapes formatting characters of a chat. Slack has escapes only for & < >; other characters are replaced by similar ones.
var chatEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "*", "∗", "~", "∼", "`", "ˋ")

// chatText formats an entry for readers in a chat: what it is about, what happened, and on lines of their own the commands that a person
// can use now, and a link to the board.
func chatText(r protocol.AnnounceRequest, board string) string {
	subject := r.Application
	if r.Service != "" {
		subject += "/" + r.Service
	}
	for _, part := range []string{r.Entry.Channel, r.Entry.Version} {
		if part != "" {
			subject += " " + part
		}
	}
	text := fmt.Sprintf("%s: %s", r.Entry.Kind, r.Entry.Text)
	if r.Entry.Reason != "" {
		text += " — " + r.Entry.Reason
	}
	if who := r.Entry.Who; who != nil && who.Name != "" {
		text += " (" + who.Name + ")"
	}
	escape := func(text string) string { return chatEscapes.Replace(entities.Visible(text)) }
	out := "*" + escape(subject) + "* " + escape(text)
	for _, command := range r.Next {
		out += "\n`" + escape(command) + "`"
	}
	if board != "" {
		out += "\n<" + chatEscapes.Replace(board) + "|on the board>"
	}
	return out
}
