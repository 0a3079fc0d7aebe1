package store

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities/protocol"
)

// commits holds the commits of each incarnation.
const commits = "commits/"

// maxChain bounds how many incarnations are read to find the commits between two.
const maxChain = 1000

// PutCommits stores the commits of an incarnation and returns their digest.
func (s *Store) PutCommits(ctx context.Context, c protocol.Commits) (string, error) {
	return s.putJSON(ctx, commits, c)
}

// Commits returns the commits of a digest.
func (s *Store) Commits(ctx context.Context, digest string) (protocol.Commits, error) {
	return getJSON[protocol.Commits](ctx, s, commits, digest)
}

// Brought returns the commits of an incarnation that an earlier one does not have; for 0, all known commits. An incarnation that is not
// later brings none. The result says if some commits are unknown; that is not an error.
func (s *Store) Brought(ctx context.Context, application string, since, incarnation int64) (protocol.ReleaseCommits, error) {
	out := protocol.ReleaseCommits{Since: since, Incarnation: incarnation, Commits: []protocol.IncarnationCommits{}}
	if incarnation <= since {
		return out, nil
	}
	baseCommit := ""
	if since > 0 {
		before, err := s.Number(ctx, application, since)
		if err != nil {
			return out, err
		}
		baseCommit = before.Origin.Commit
	}
	nextCommit := ""
	for n := incarnation; n > max(since, incarnation-maxChain); n-- {
		i, err := s.Number(ctx, application, n)
		if IsNotFound(err) && n < incarnation {
			continue // numbers have gaps if an application was lost
		}
		if err != nil {
			return out, err
		}
		if nextCommit != "" && i.Origin.Commit != nextCommit {
			continue // a later incarnation includes its commits
		}
		if nextCommit, err = s.addCommits(ctx, &out, i, baseCommit); err != nil || nextCommit == "" {
			return out, err
		}
	}
	out.Unknown = fmt.Sprintf("the commits of %s and before are not known", nextCommit[:min(12, len(nextCommit))])
	return out, nil
}

// addCommits adds the commits of one incarnation. It returns the commit at which earlier commits begin; "": no more are needed or known.
func (s *Store) addCommits(ctx context.Context, out *protocol.ReleaseCommits, i protocol.Incarnation, baseCommit string) (since string, err error) {
	if baseCommit != "" && i.Origin.Commit == baseCommit {
		return "", nil
	}
	if i.Commits == "" {
		out.Unknown = fmt.Sprintf("incarnation %d is from %s, whose commits are not known", i.Number, i.Origin.Path)
		return "", nil
	}
	c, err := s.Commits(ctx, i.Commits)
	if err != nil {
		return "", err
	}
	if len(c.All) > 0 {
		out.Commits = append(out.Commits, protocol.IncarnationCommits{Incarnation: i.Number, Commits: c.All})
	}
	switch {
	case c.Truncated != "":
		out.Unknown = fmt.Sprintf("incarnation %d lists %d of its commits: %s", i.Number, len(c.All), c.Truncated)
	case c.Since != baseCommit:
		return c.Since, nil
	}
	return "", nil
}
