// Package limit bounds how many requests one sender makes, so that a page that asks in a loop, or a program, leaves the server to others. The
// senders are those who signed in, or whose token was accepted; without a sign-in, a server is one person's.
package limit

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
)

// A sender makes Rate requests a second, and Burst at once: ten tabs that are opened together.
const (
	Rate  = 20
	Burst = 200
	// maxSenders are remembered. A sender who made no request for idle has a full burst again, and is forgotten.
	maxSenders = 10_000
	idle       = time.Minute
)

// Limits are the senders of a server.
type Limits struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]*sender
}

type sender struct {
	*rate.Limiter
	last time.Time
}

// New returns limits of a server.
func New(now func() time.Time) *Limits { return &Limits{now: now, all: map[string]*sender{}} }

// Wrap answers 429 to a sender who makes too many requests.
func (l *Limits) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known := session.From(r.Context())
		if !known || l.allows(who) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		err := fmt.Errorf("you sent too many requests; expected %d a second at most", Rate)
		if !strings.HasPrefix(r.URL.Path, "/api/") {
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		api.NewProblem(api.TooMany, err).Write(w)
	})
}

// allows counts a request.
func (l *Limits) allows(who entities.Who) bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	key := cmp.Or(who.Subject, who.Name)
	s := l.all[key]
	if s == nil {
		if len(l.all) >= maxSenders {
			l.forget(now)
		}
		s = &sender{Limiter: rate.NewLimiter(Rate, Burst)}
		l.all[key] = s
	}
	s.last = now
	return s.AllowN(now, 1)
}

// forget makes room: for those who were idle, or else for all.
func (l *Limits) forget(now time.Time) {
	for key, s := range l.all {
		if now.Sub(s.last) > idle {
			delete(l.all, key)
		}
	}
	if len(l.all) >= maxSenders {
		clear(l.all)
	}
}
