package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// brought is what an incarnation brings, as text: each incarnation with the commits that came with it.
func brought(t *testing.T, s *Store, since, to int64) (text, unknown string) {
	t.Helper()
	b, err := s.Brought(t.Context(), "shop", since, to)
	require.NoError(t, err)
	for _, i := range b.Commits {
		text += fmt.Sprintf("%d:", i.Incarnation)
		for _, c := range i.Commits {
			text += c.SHA
		}
		text += " "
	}
	return text, b.Unknown
}

// number publishes an incarnation of a commit; since nil: nothing else is known of it.
func number(t *testing.T, s *Store, n int64, commit string, since *string, cut string, all ...string) {
	t.Helper()
	i := protocol.Incarnation{Number: n, Hash: fmt.Sprint("h", n), Origin: protocol.Origin{Path: "/srv/shop", Commit: commit}}
	if since != nil {
		c := protocol.Commits{Commit: commit, Since: *since, Truncated: cut}
		for _, sha := range all {
			c.All = append(c.All, protocol.Commit{SHA: sha})
		}
		var err error
		i.Commits, err = s.PutCommits(t.Context(), c)
		require.NoError(t, err)
	}
	require.NoError(t, s.PutNumber(t.Context(), "shop", i))
}

// What an incarnation brings is the union of what came since another one; what is not known of it is said.
func TestCommitsBetweenIncarnations_A20(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	defer s.Close() // only of the test
	at := func(commit string) *string { return &commit }
	number(t, s, 1, "b", at(""), "", "b", "a")
	number(t, s, 2, "d", at("b"), "", "d", "c")
	number(t, s, 3, "", nil, "") // a directory
	number(t, s, 4, "f", at("d"), "", "f", "e")
	number(t, s, 6, "f", at("f"), "") // the same commit, with something else; there is no 5
	number(t, s, 7, "z", at("f"), "there are more", "z")
	for _, row := range []struct {
		since, to     int64
		text, unknown string
	}{
		{0, 1, "1:ba ", ""},
		{0, 4, "4:fe 2:dc 1:ba ", ""},
		{1, 4, "4:fe 2:dc ", ""},
		{2, 4, "4:fe ", ""},
		{4, 4, "", ""},
		{4, 2, "", ""},
		{4, 6, "", ""},
		{2, 3, "", "incarnation 3 is from /srv/shop, whose commits are not known"},
		{3, 4, "4:fe ", "the commits of d and before are not known"},
		{1, 6, "4:fe 2:dc ", ""},
		{6, 7, "7:z ", "incarnation 7 lists 1 of its commits: there are more"},
	} {
		text, unknown := brought(t, s, row.since, row.to)
		require.Equal(t, row.text, text, "%d to %d", row.since, row.to)
		require.Equal(t, row.unknown, unknown, "%d to %d", row.since, row.to)
	}
	_, err = s.Brought(t.Context(), "shop", 1, 5)
	require.True(t, IsNotFound(err), "%v", err)
}
