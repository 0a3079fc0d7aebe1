package watch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/entities/protocol"
)

// fakeSource is a source whose state depends on its age.
type fakeSource struct {
	began time.Time
	state func(age time.Duration) (string, error)
	polls int
}

func (c *fakeSource) String() string { return "it" }

func (c *fakeSource) Newest(context.Context) (string, error) {
	c.polls++
	return c.state(time.Since(c.began))
}

func (c *fakeSource) Fetch(context.Context, origin.Since) (origin.Tree, error) {
	state, err := c.state(time.Since(c.began))
	return origin.Tree{State: state, Origin: protocol.Origin{Path: "it"}}, err
}

// runPublisher runs a Publisher for a period of virtual time, and returns what it published and reported.
func runPublisher(t *testing.T, c *fakeSource, duration time.Duration, refuse func(state string) error) (lines []string) {
	t.Helper()
	c.began = time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	note := func(what string) { lines = append(lines, fmt.Sprintf("%v %s", time.Since(c.began), what)) }
	Publisher{
		Source: c, Interval: 10 * time.Second, Quiet: 2 * time.Second, MaxDelay: 12 * time.Second,
		Publish: func(_ context.Context, tree origin.Tree) error {
			if err := refuse(tree.State); err != nil {
				return err
			}
			note(fmt.Sprintf("%s for %d", tree.State, len(tree.Causes)))
			return nil
		},
		Report: func(err error) { note(fmt.Sprint(err)) },
	}.Run(ctx)
	return lines
}

func acceptAll(string) error { return nil }

// steps returns states by the age at which each becomes the newest.
func steps(at map[time.Duration]string) func(time.Duration) (string, error) {
	return func(age time.Duration) (string, error) {
		newest := time.Duration(0)
		for from := range at {
			if from <= age {
				newest = max(newest, from)
			}
		}
		return at[newest], nil
	}
}

func TestQuickChangesAreOnePublication_D6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeSource{state: steps(map[time.Duration]string{0: "a", 15 * time.Second: "b", 23 * time.Second: "c", 25 * time.Second: "d"})}
		require.Equal(t, []string{"2s a for 1", "28s d for 3"}, runPublisher(t, c, time.Hour, acceptAll))
		require.Less(t, c.polls, 400, "one poll per interval while nothing changes")
	})
}

// A source that never stops changing is published nevertheless.
func TestWaitingIsBounded_D6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeSource{state: func(age time.Duration) (string, error) { return age.Truncate(time.Second).String(), nil }}
		lines := runPublisher(t, c, 50*time.Second, acceptAll)
		require.Equal(t, []string{"12s 12s for 6", "34s 34s for 6"}, lines)
	})
}

// A refused state is reported once and retried with growing delays. The next good state is published at once.
func TestTheNextGoodStateIsPublished_D3_D14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeSource{state: steps(map[time.Duration]string{0: "a", time.Minute: "broken", 20 * time.Minute: "b"})}
		tries := 0
		lines := runPublisher(t, c, time.Hour, func(state string) error {
			if state == "broken" {
				tries++
				return errors.New("broken")
			}
			return nil
		})
		require.Equal(t, []string{"2s a for 1", "1m4s broken", "20m2s b for 1", "20m2s <nil>"}, lines)
		require.Greater(t, tries, 3)
		require.Less(t, tries, 15)
	})
}

// A source that cannot be read is polled with growing delays, and works again once it can be read.
func TestASourceThatFails_D9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeSource{state: func(age time.Duration) (string, error) {
			if age > time.Minute && age < time.Hour {
				return "", errors.New("gone")
			}
			return "a", nil
		}}
		lines := runPublisher(t, c, 2*time.Hour, acceptAll)
		require.Equal(t, "2s a for 1", lines[0])
		require.Contains(t, lines[1], "gone")
		require.Len(t, lines, 3)
		require.Contains(t, lines[2], "<nil>")
	})
}

// A source that hangs, fails or changes constantly delays no other source.
func TestSourcesDoNotDelayEachOther_D9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := func() *fakeSource {
			return &fakeSource{state: steps(map[time.Duration]string{0: "a", time.Minute: "b"})}
		}
		alone := runPublisher(t, good(), 10*time.Minute, acceptAll)

		others := []*fakeSource{
			{state: func(time.Duration) (string, error) { return "", errors.New("gone") }},
			{state: func(age time.Duration) (string, error) { return age.String(), nil }},
			{state: func(time.Duration) (string, error) { time.Sleep(time.Hour); return "", nil }},
		}
		done := make(chan struct{})
		for _, other := range others {
			go func() { runPublisher(t, other, 10*time.Minute, acceptAll); done <- struct{}{} }()
		}
		require.Equal(t, alone, runPublisher(t, good(), 10*time.Minute, acceptAll))
		for range others {
			<-done
		}
	})
}
