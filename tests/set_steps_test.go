package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/gittest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// twoPrices is an application whose runtime notes each price that it is told to ask in a channel, and takes no 9 in us.
const twoPrices = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: eu, runtimes: [{name: files}]}, {name: us, runtimes: [{name: files}]}]
---
apiVersion: converge/v1
kind: Runtime
name: files
custom:
  apply:
    command: [sh, -c, '[ "$PVN_RELEASE_CHANNEL $PRICE" != "us 9" ] && echo "$PVN_RELEASE_CHANNEL $PRICE" >> "$TMPDIR/prices"']
    retryableExitCodes: [75]
---
apiVersion: converge/v1
kind: Service
name: web
version: v1
custom: {env: {PRICE: "0"}}
perReleaseChannel:
- {releaseChannel: eu, custom: {env: {PRICE: "1"}}}
- {releaseChannel: us, custom: {env: {PRICE: "1"}}}
`

// A value is changed in one place after the other, each by a commit, once what the one before changed has converged. Run again nothing
// is committed. Where a step fails the rest is left, and what was committed is taken back.
func TestSourceIsEditedInSteps_D25(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	first := filepath.Join(home, "first")
	require.NoError(t, os.Mkdir(first, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(first, "converge.yaml"), []byte(strings.NewReplacer("NAME", "first", "RELEASED", "v1").Replace(watchable)), 0o600))
	d := shared.Dev(t, first)
	d.Env = []string{"XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "TMPDIR=" + home}
	d.Start()
	d.Await("first/web", "prod CONVERGED v1")

	r := gittest.New(t)
	r.Commit(t, "Begin", map[string]string{"deploy/converge.yaml": twoPrices})
	bare := filepath.Join(home, "shop.git")
	repo, err := git.PlainClone(bare, true, &git.CloneOptions{URL: r.Dir})
	require.NoError(t, err)
	subjects := func() (out []string) {
		head, err := repo.Reference("refs/heads/main", true)
		require.NoError(t, err)
		for c, err := repo.CommitObject(head.Hash()); ; c, err = c.Parent(0) {
			require.NoError(t, err)
			out = append([]string{strings.TrimSpace(c.Message)}, out...)
			if c.NumParents() == 0 {
				return out
			}
		}
	}
	prices := func() []string {
		data, err := os.ReadFile(filepath.Join(home, "prices"))
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	source := "git::file://" + bare + "//deploy?ref=main"
	out, code := d.Converge("config", "publish", source)
	require.Zero(t, code, out)
	d.Await("shop/web", "eu CONVERGED v1, us CONVERGED v1")
	require.ElementsMatch(t, []string{"eu 1", "us 1"}, prices())

	const eu, us = "Service/web.perReleaseChannel[releaseChannel=eu].custom.env.PRICE", "Service/web.perReleaseChannel[releaseChannel=us].custom.env.PRICE"
	set := func(value string, more ...string) (string, int) {
		return d.Converge(append([]string{"config", "set", source, eu, value, "--then", us, "--author", "Ada <ada@acme.dev>", "--pause", "1ms", "--timeout", "1h"}, more...)...)
	}
	out, code = set("2", "--publish")
	require.Zero(t, code, out)
	require.Contains(t, out, us+`: done, changed "1" to "2" in commit `)
	require.Equal(t, []string{"eu 2", "us 2"}, prices()[2:], "one after the other")
	two := []string{"Begin", "Set " + eu + " to 2", "Set " + us + " to 2"}
	require.Equal(t, two, subjects())

	d.Background("config", "watch", source, "--interval", "1s", "--quiet", "10ms")
	out, code = set("2")
	require.Zero(t, code, out)
	require.Contains(t, out, eu+": already\n")
	require.Contains(t, out, us+": already\n")
	require.Equal(t, two, subjects())

	out, code = set("3")
	require.Zero(t, code, out)
	require.Equal(t, []string{"eu 3", "us 3"}, prices()[4:])
	three := append(two, "Set "+eu+" to 3", "Set "+us+" to 3")
	require.Equal(t, three, subjects())

	out, code = set("9", "--revert")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, eu+`: reverted, changed "9" to "3" in commit `)
	require.Contains(t, out, us+`: reverted, changed "9" to "3" in commit `)
	require.Equal(t, append(three, "Set "+eu+" to 9", "Set "+us+" to 9", "Revert "+us+" to 3", "Revert "+eu+" to 3"), subjects())
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // it is published a moment later
		out, code := d.Converge("wait", "shop/web")
		return code == 0, out
	})
	out, code = d.Converge("status", "shop/web", "--commits")
	require.Zero(t, code, out)
	require.Contains(t, out, "Ada: Revert "+eu)
	out, code = d.Converge("status", "shop/web", "--commits", "--output", "json")
	require.Zero(t, code, out)
	var document struct{ Commits []protocol.ReleaseCommits }
	require.NoError(t, json.Unmarshal([]byte(out), &document))
	require.Equal(t, "Revert "+eu+" to 3", document.Commits[0].Commits[0].Commits[0].Subject)
}
