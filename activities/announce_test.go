package activities

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// hook is a webhook on loopback.
type hook struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	bodies []string
	keys   []string
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{status: http.StatusOK}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.bodies, h.keys = append(h.bodies, string(body)), append(h.keys, r.Header.Get("Idempotency-Key"))
	if h.status >= 300 && h.status < 400 {
		w.Header().Set("Location", h.URL+"/elsewhere")
	}
	w.WriteHeader(h.status)
}

func announcement(hooks ...entities.Notification) protocol.AnnounceRequest {
	return protocol.AnnounceRequest{
		Application: "shop", Service: "web", Notifications: hooks,
		Entry: entities.AuditEntry{
			N: 12, At: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC), Kind: entities.EventRollback, Who: &entities.Who{Name: "alice"},
			Channel: "prod", Version: "v2", Text: "v2 rolled back to v1 in prod", Reason: "error rate 7 % > 5 %",
		},
		Next: []string{"converge explain shop/web prod"},
	}
}

// A webhook gets the commits of a release, as far as they are known.
func TestCommitsAreAnnounced_A20(t *testing.T) {
	h := newHook(t)
	r := announcement(entities.Notification{Name: "plain", URL: entities.Value{Literal: h.URL}})
	a := newActivities(t, &server{})
	c := protocol.Commits{Commit: "c", Since: "a"}
	for range announcedCommits {
		c.All = append(c.All, protocol.Commit{SHA: "c", Author: "Ada", Subject: "Sell more"})
	}
	c.All = append(c.All, protocol.Commit{SHA: "b"})
	digest, err := a.Store.PutCommits(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, a.Store.PutNumber(t.Context(), "shop", protocol.Incarnation{Number: 3, Origin: protocol.Origin{Commit: "a"}}))
	require.NoError(t, a.Store.PutNumber(t.Context(), "shop", protocol.Incarnation{Number: 4, Origin: protocol.Origin{Commit: "c"}, Commits: digest}))
	for _, numbers := range [][2]int64{{3, 4}, {4, 4}, {0, 9}, {0, 0}} {
		r.Since, r.Incarnation = numbers[0], numbers[1]
		_, _, err := run[any](t, a.Announce, r)
		require.NoError(t, err)
	}
	var events [4]Event
	for n, body := range h.bodies {
		require.NoError(t, json.Unmarshal([]byte(body), &events[n]))
	}
	require.Equal(t, protocol.ReleaseCommits{
		Channel: "prod", Version: "v2", Since: 3, Incarnation: 4, Unknown: "only the newest are listed",
		Commits: []protocol.IncarnationCommits{{Incarnation: 4, Commits: c.All[:announcedCommits]}},
	}, *events[0].Commits)
	for _, e := range events[1:] {
		require.Nil(t, e.Commits)
	}
}

func TestAnnounceToWebhooks(t *testing.T) {
	plain, slack := newHook(t), newHook(t)
	t.Setenv("SLACK_URL", slack.URL+"/services/T0/SECRET\n")
	r := announcement(
		entities.Notification{Name: "plain", URL: entities.Value{Literal: plain.URL}},
		entities.Notification{Name: "slack", URL: entities.Value{WorkerEnv: "SLACK_URL"}, Format: "slack"},
	)
	_, _, err := run[any](t, newActivities(t, &server{}).Announce, r)
	require.NoError(t, err)
	var event Event
	require.NoError(t, json.Unmarshal([]byte(plain.bodies[0]), &event))
	require.Equal(t, Event{Schema: "converge.event/v1", Application: "shop", Service: "web", Entry: r.Entry, Next: r.Next}, event)
	require.Equal(t, []string{"shop/web/12@2026-11-21T10:00:00Z"}, plain.keys)
	require.Equal(t, plain.keys, slack.keys)
	var message map[string]string
	require.NoError(t, json.Unmarshal([]byte(slack.bodies[0]), &message))
	require.Equal(t, map[string]string{"text": "*shop/web prod v2* rollback: v2 rolled back to v1 in prod — error rate 7 % &gt; 5 % (alice)\n`converge explain shop/web prod`"}, message)
}

// An unavailable webhook does not cause duplicates at the others, and no error contains its URL.
func TestAnnounceRetriesOnlyFailedWebhooks(t *testing.T) {
	first, down, last := newHook(t), newHook(t), newHook(t)
	down.status = http.StatusBadGateway
	r := announcement(
		entities.Notification{Name: "first", URL: entities.Value{Literal: first.URL}},
		entities.Notification{Name: "down", URL: entities.Value{Literal: down.URL + "/SECRET"}},
		entities.Notification{Name: "last", URL: entities.Value{Literal: last.URL}},
	)
	a := newActivities(t, &server{})
	_, beats, err := run[any](t, a.Announce, r)
	require.Equal(t, "notification down: answered 502 Bad Gateway", applicationError(t, err).Message())
	require.False(t, applicationError(t, err).NonRetryable())
	var announced []string
	require.NoError(t, beats[len(beats)-1].Get(&announced))
	require.ElementsMatch(t, []string{"first", "last"}, announced)

	down.status = http.StatusNoContent
	_, _, err = run[any](t, a.Announce, r, announced)
	require.NoError(t, err)
	require.Len(t, first.bodies, 1)
	require.Len(t, last.bodies, 1)
	require.Len(t, down.bodies, 2)
	require.Equal(t, down.keys[0], down.keys[1])
}

func TestAnnounceErrorsKeepTheURLSecret(t *testing.T) {
	redirecting, down := newHook(t), newHook(t)
	redirecting.status = http.StatusFound
	down.Close()
	a := newActivities(t, &server{})
	for text, n := range map[string]entities.Notification{
		"notification n: answered 302 Found":  {URL: entities.Value{Literal: redirecting.URL + "/SECRET"}},
		"connection refused":                  {URL: entities.Value{Literal: down.URL + "/SECRET"}},
		"invalid url":                         {URL: entities.Value{Literal: "SECRET"}},
		"variable NOT_SET_HERE, which":        {URL: entities.Value{WorkerEnv: "NOT_SET_HERE"}},
		`unknown format "xml"; expected json`: {URL: entities.Value{Literal: redirecting.URL}, Format: "xml"},
	} {
		n.Name = "n"
		_, _, err := run[any](t, a.Announce, announcement(n))
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "SECRET")
	}
	require.Len(t, redirecting.bodies, 1)
	require.True(t, strings.HasPrefix(redirecting.URL, "http://127.0.0.1"), "no request leaves this machine")
}

// A chat shows the text of users as it was written: without mentions, links and forged entries.
func TestAnnouncedTextIsEscaped(t *testing.T) {
	r := announcement()
	r.Entry.Text, r.Entry.Reason = "v2 <!channel> <http://evil|approve>\n*shop/web* approval: PASS", "`x` ~y~ \u202e"
	r.Next = []string{"converge `id`\n<!here>"}
	require.Equal(t, "*shop/web prod v2* rollback: v2 &lt;!channel&gt; &lt;http://evil|approve&gt;\\n∗shop/web∗ approval: PASS — ˋxˋ ∼y∼ \\u202e (alice)\n`converge ˋidˋ\\n&lt;!here&gt;`", chatText(r, ""))
}

// A notification leads to the page of the service, or of the application, if the rules of the installation name a board.
func TestAnnouncementLinksToTheBoard(t *testing.T) {
	hook, chat := newHook(t), newHook(t)
	a := newActivities(t, &server{})
	_, err := a.Store.CreateRules(t.Context(), protocol.Rules{Number: 1, Rules: entities.Rules{Board: "https://converge.shop.dev"}})
	require.NoError(t, err)
	r := announcement(entities.Notification{Name: "hook", URL: entities.Value{Literal: hook.URL}}, entities.Notification{Name: "chat", URL: entities.Value{Literal: chat.URL}, Format: "slack"})
	_, _, err = run[any](t, a.Announce, r)
	require.NoError(t, err)
	require.Contains(t, hook.bodies[0], `"board":"https://converge.shop.dev/services/shop/web"`)
	require.Contains(t, chat.bodies[0], `https://converge.shop.dev/services/shop/web|on the board`)
	r.Service = ""
	_, _, err = run[any](t, a.Announce, r)
	require.NoError(t, err)
	require.Contains(t, hook.bodies[1], `"board":"https://converge.shop.dev/applications/shop"`)
}
