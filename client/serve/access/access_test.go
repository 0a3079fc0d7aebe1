package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// installation answers from the readers of its applications, after a while. All other calls panic.
type installation struct {
	connection.API
	mu       sync.Mutex
	readers  map[string][]string
	grants   []entities.Grant // of the rules of the installation; nil: it has no workflow
	fault    error
	takes    time.Duration
	requests int
}

func (i *installation) Query(ctx context.Context, id, _ string, into any) error {
	i.mu.Lock()
	i.requests++
	readers, found := i.readers[applicationOf(id)]
	fault, takes, grants := i.fault, i.takes, i.grants
	i.mu.Unlock()
	var answer any = protocol.ApplicationStatus{Readers: readers}
	if id == protocol.InstallationID() {
		found, answer = grants != nil, protocol.InstallationStatus{Rules: protocol.Rules{Rules: entities.Rules{Grants: grants}}}
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case fault != nil:
		return fault
	case !found:
		return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// as is a context of a person's request.
func as(t *testing.T, name string, groups ...string) context.Context {
	t.Helper()
	return session.With(t.Context(), entities.Who{Name: name, Groups: groups, Proven: true})
}

// Those whom a grant names may read, by name and by group; all may if none names readers; and no unknown sender.
func TestCheck_G2(t *testing.T) {
	r := New(&installation{readers: map[string][]string{"shop": {"alice", "group:sre"}, "open": nil}}, time.Now)
	require.NoError(t, r.Check(as(t, "alice"), "shop"))
	require.NoError(t, r.Check(as(t, "bob", "sre"), "shop"))
	require.NoError(t, r.Check(as(t, "bob"), "open"))
	require.NoError(t, r.Check(as(t, "bob"), ""))
	for _, err := range []error{
		r.Check(as(t, "bob"), "shop"), r.Check(as(t, "bob", "dev"), "shop"), r.Check(as(t, "bob"), "missing"), r.Check(as(t, "bob"), "../shop"),
		r.Check(t.Context(), "open"), r.Check(t.Context(), ""),
	} {
		require.ErrorAs(t, err, new(*HiddenError))
		require.NotErrorIs(t, err, connection.ErrNotFound, "the trail of what is gone is read from the store")
	}
	require.Equal(t, r.Check(as(t, "bob"), "shop").Error(), "no application shop that you may read")
	require.NoError(t, (*Readers)(nil).Check(t.Context(), "shop"), "a server without a sign-in")
}

// The installation and its runtimes are read by all known senders, until its rules say by whom; who is granted that is known.
func TestCheckInstallation_G2(t *testing.T) {
	i := &installation{readers: map[string][]string{"shop": {"alice"}}}
	r := New(i, time.Now)
	require.NoError(t, r.CheckInstallation(as(t, "bob")), "there is no workflow, and no rules")
	require.EqualError(t, r.CheckInstallation(t.Context()), "you may not read the installation and its runtimes")
	require.NoError(t, (*Readers)(nil).CheckInstallation(t.Context()), "a server without a sign-in")
	require.False(t, r.IsGrantedInstallation(as(t, "bob")))
	require.False(t, r.IsGrantedInstallation(t.Context()))
	require.True(t, (*Readers)(nil).IsGrantedInstallation(t.Context()))

	i.grants = []entities.Grant{{Verbs: []string{"pause"}, To: []string{"bob"}}}
	r = New(i, time.Now)
	require.NoError(t, r.CheckInstallation(as(t, "eve")), "no grant names read")
	require.False(t, r.IsGrantedInstallation(as(t, "bob")))

	i.grants = append(i.grants, entities.Grant{Verbs: []string{"read"}, To: []string{"group:platform"}})
	r = New(i, time.Now)
	require.NoError(t, r.CheckInstallation(as(t, "bob")), "who may pause may read")
	require.True(t, r.IsGrantedInstallation(as(t, "dora", "platform")))
	require.False(t, r.IsGrantedInstallation(as(t, "eve")))
	require.ErrorAs(t, r.CheckInstallation(as(t, "eve")), new(*HiddenError))
	require.NoError(t, r.Check(as(t, "eve"), ""), "a pause of the runtime of her service is shown with it")

	i.fault = errors.New("no worker answers")
	require.ErrorContains(t, New(i, time.Now).CheckInstallation(as(t, "bob")), "who may read the installation is not known: no worker answers")
}

// Many requests at once cost one. A grant that was taken away counts for half a minute at most.
func TestReadersAreKeptForAWhile_G2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &installation{readers: map[string][]string{"shop": {"alice"}}, takes: time.Second}
		r := New(i, time.Now)
		var g sync.WaitGroup
		for range 100 {
			g.Go(func() { require.NoError(t, r.Check(as(t, "alice"), "shop")) })
		}
		g.Wait()
		require.Equal(t, 1, i.requests)
		i.readers["shop"] = []string{"carol"}
		require.NoError(t, r.Check(as(t, "alice"), "shop"))
		time.Sleep(kept)
		require.ErrorAs(t, r.Check(as(t, "alice"), "shop"), new(*HiddenError))
		require.NoError(t, r.Check(as(t, "carol"), "shop"))
		require.Equal(t, 2, i.requests)
	})
}

// An application that does not answer is not read, holds requests up for a moment only, and is not shown as hidden: the cause is stated.
func TestApplicationThatDoesNotAnswer_G2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &installation{readers: map[string][]string{"shop": nil}, takes: time.Hour}
		r := New(i, time.Now)
		begun := time.Now()
		err := r.Check(as(t, "alice"), "shop")
		require.Equal(t, patience, time.Since(begun))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "who may read shop is not known")
		begun = time.Now()
		allowed, unknown := r.Allowed(as(t, "alice"), []string{"missing", "shop"})
		require.Equal(t, patience, time.Since(begun), "for the one that was not requested before")
		require.Equal(t, 2, unknown)
		require.False(t, allowed("shop"))

		i.mu.Lock()
		i.takes, i.fault = 0, errors.New("no worker answers")
		i.mu.Unlock()
		time.Sleep(tryAgain)
		require.ErrorContains(t, r.Check(as(t, "alice"), "shop"), "no worker answers")
		i.mu.Lock()
		i.fault = nil
		i.mu.Unlock()
		time.Sleep(tryAgain)
		require.NoError(t, r.Check(as(t, "alice"), "shop"))
	})
}
