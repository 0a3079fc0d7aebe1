package gates

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
)

// What a configuration asks for less is said before it is published, and who is told may still keep it from that.
func TestLoosenedRulesAreReportedBefore(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	config := func(limit, people string) {
		w.Write(`apiVersion: converge/v1
kind: Application
name: ` + w.App + `
releaseChannels:
- name: staging
  runtimes: [{name: ` + w.App + `-rt}]
  preconditions: [{manualApproval: {approvers: ` + people + `}}]
  protections: [{name: slo, prometheus: {url: "http://127.0.0.1:1", query: errors, lessThan: ` + limit + `}, lifecycle: [postDeployment: {for: 1m}]}]
---
{apiVersion: converge/v1, kind: Service, name: web}
---
{apiVersion: converge/v1, kind: Service, name: api}
---
{apiVersion: converge/v1, kind: Runtime, name: ` + w.App + `-rt, fake: {}}
`)
	}
	try := func(dry bool, before func(publish.Result) error) (publish.Result, error) {
		return publish.Publish(t.Context(), publish.Options{
			Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true, DryRun: dry, Before: before,
		})
	}
	config("0.05", "[alice]")
	require.Empty(t, w.Publish().Loosened, "the first")
	config("0.5", "[alice, mallory]")
	want := []string{
		"api, web in staging: approval/staging from mallory, too",
		"api, web in staging: slo: less than 0.5 instead of 0.05",
	}
	said := func(r publish.Result) (out []string) {
		for _, l := range r.Loosened {
			out = append(out, l.String())
		}
		return out
	}
	dry, err := try(true, nil)
	require.NoError(t, err)
	require.Equal(t, want, said(dry))

	no := errors.New("not like this")
	_, err = try(false, func(r publish.Result) error {
		require.Equal(t, want, said(r))
		return no
	})
	require.ErrorIs(t, err, no)
	newest := func() int64 {
		status, err := publish.Status(t.Context(), w.Client, w.App)
		require.NoError(t, err)
		return status.Newest
	}
	require.EqualValues(t, 1, newest())

	done, err := try(false, func(publish.Result) error {
		require.EqualValues(t, 1, newest(), "not yet")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, want, said(done))
	require.EqualValues(t, 2, newest())
	config("0.01", "[alice]")
	require.Empty(t, w.Publish().Loosened, "it asks for more")
}
