package security

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

const installationHead = "apiVersion: converge/v1\nkind: Installation\n"

// freeze keeps everything out of production, and has two people approve; only the platform's may bypass that.
const freeze = `baseline:
  protections:
  - {name: freeze, always: {verdict: FAIL, reason: "${{ service }} is frozen"}, where: {releaseChannels: [prod*]}}
  approvals:
  - {name: go-live, minApprovers: 2, where: {releaseChannels: [prod*]}}
  bypass: [platform]
`

// sets sets the rules of the installation.
func sets(t *testing.T, w *stage.World, text, by, token string) error {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(installationHead+text), 0o600))
	rules, err := compile.Rules(os.DirFS(dir), "rules.yaml")
	require.NoError(t, err)
	return w.Update(protocol.InstallationID(), protocol.Configure,
		protocol.ConfigureRequest{RequestMeta: protocol.RequestMeta{By: by, Token: token}, Rules: rules}, &protocol.Answer{})
}

// gates are those that a channel of a service has, as its status says it.
func gates(s protocol.Status, channel string) map[string]string {
	all := map[string]string{}
	for _, c := range s.Channels {
		if c.Name == channel {
			for _, g := range c.Conditions {
				all[g.ID] = g.Verdict
			}
		}
	}
	return all
}

func frozen(s protocol.Status) bool {
	g := gates(s, "production")
	return g["baseline/freeze"] == "FAIL" && g["approval/baseline/go-live"] == "WAIT"
}

// A baseline that is set later holds at once for what is published already, and for releases that wait; one that is published
// later has it whoever compiled it; when it is taken back, what waits goes on. The trail of the installation says who did that.
func TestBaselineHoldsAtOnceForAll_G2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	publishes(w, ", {manualApproval: {}}")
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	require.NoError(t, sets(t, w, freeze, "olga", ""))
	w.AwaitThat("web", "the baseline", frozen)
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	got := w.AwaitThat("web", "its reason", func(s protocol.Status) bool { return strings.Contains(fmt.Sprint(s.Channels), "web is frozen") })
	require.Equal(t, []string{"incarnation 1, with the baseline of rules 1"}, journalled(got, "the baseline of"))

	publishes(w, "") // what the publisher can do
	w.AwaitThat("web", "incarnation 2, frozen", func(s protocol.Status) bool { return s.Incarnation == 2 && frozen(s) })
	for _, who := range []string{"mallory", "alice"} {
		bypass := fmt.Sprintf(`{"by":%q,"version":"v1","channel":"production","condition":"baseline/freeze","reason":"now"}`, who)
		require.ErrorContains(t, w.Update(w.ID("web"), protocol.Bypass, raw(bypass), &protocol.Answer{}), who+" may not bypass it; allowed: platform")
		w.Signal("web", protocol.Bypass, bypass)
	}
	w.AwaitThat("web", "what was refused", func(s protocol.Status) bool { return len(s.Refused) == 2 })
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())

	require.NoError(t, sets(t, w, strings.Replace(freeze, "FAIL", "PASS", 1), "olga", ""))
	w.AwaitThat("web", "another verdict", func(s protocol.Status) bool { return gates(s, "production")["baseline/freeze"] == "PASS" })
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"baseline/go-live"}`)
	w.Act("web", protocol.Bypass, `{"by":"platform","version":"v1","channel":"production","condition":"approval/baseline/go-live","reason":"alice is alone"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	var texts []string
	for _, l := range standing(t, w.Client, protocol.InstallationID()).Audit {
		texts = append(texts, l.Who.Name+": "+l.Text)
	}
	require.Equal(t, []string{
		"olga: rules 1 are in force; baseline: added approval/baseline/go-live, added baseline/freeze, added bypass",
		"olga: rules 2 are in force; baseline: changed baseline/freeze",
	}, texts)

	year := time.Now().UTC()
	require.NoError(t, sets(t, w, strings.NewReplacer("FROM", year.AddDate(0, 0, -2).Format(time.DateOnly), "TO", year.AddDate(0, 0, 30).Format(time.DateOnly)).Replace(yearEnd), "olga", ""))
	w.Release("web", "v2")
	w.AwaitThat("web", "what docs/spec/installation.md shows", func(s protocol.Status) bool {
		page := stage.Text(t, "../../docs/spec/installation.md", "Baseline").With(strings.NewReplacer("shop/web", w.App+"/web", "Mon 4 Jan 00:00 CET", "…", "in 15d", "in …"))
		return page.Missing(strings.Join(explain.Lines(s, "production", time.Now()), "\n")) == ""
	})
}

// yearEnd is the baseline of docs/spec/installation.md, frozen now.
const yearEnd = `baseline:
  protections:
  - {name: year-end, allowedTimes: {timeZone: Europe/Paris, freezes: [{from: "FROM", to: "TO", reason: year end}]}, where: {releaseChannels: [prod*]}}
  approvals:
  - {name: go-live, minApprovers: 2, approvers: ["group:sre"], where: {releaseChannels: [prod*]}}
`

// A service whose workflow was gone when the baseline was set has it once it is started again, from a checkpoint of before.
func TestReturnedServiceHasTheBaseline_G2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	publishes(w, ", {manualApproval: {}}")
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "gone"))
	require.NoError(t, sets(t, w, freeze, "olga", ""))
	w.AwaitThat("web", "the baseline", frozen)
}

func journalled(s protocol.Status, word string) (all []string) {
	for _, l := range s.Journal {
		if strings.Contains(l.Text, word) {
			all = append(all, l.Text)
		}
	}
	return all
}

// forges writes an incarnation whose services say of the baseline what they like, under its names, straight into the store, as
// whoever compiles for himself can. The checks that it names pass.
func forges(t *testing.T, w *stage.World) protocol.PublishRequest {
	t.Helper()
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close() // all is written
	newest, err := s.Number(t.Context(), w.App, 1)
	require.NoError(t, err)
	manifest, err := s.Manifest(t.Context(), newest.Manifest)
	require.NoError(t, err)
	forged := incarnation.Manifest{}
	for service, digest := range manifest {
		spec, err := s.Spec(t.Context(), digest)
		require.NoError(t, err)
		passes, err := s.PutCheck(t.Context(), entities.CheckDefinition{
			Application: w.App, Service: service, Channel: "production", ID: "baseline/freeze", Kind: entities.CheckAlways, Always: &entities.AlwaysCheck{Verdict: entities.Pass},
		})
		require.NoError(t, err)
		spec.Baseline = &entities.AppliedBaseline{Rules: 7, Bypass: []string{"mallory"}}
		for n := range spec.Channels {
			spec.Channels[n].Conditions = append(spec.Channels[n].Conditions,
				entities.Condition{ID: "approval/baseline/go-live", Kind: entities.ManualApproval, Topic: "baseline/go-live", MinApprovers: 1, Approvers: []string{"mallory"}},
				entities.Condition{ID: "mine", Kind: entities.ManualApproval, Topic: "baseline/go-live", MinApprovers: 1})
			spec.Channels[n].Checks = append(spec.Channels[n].Checks, entities.Check{
				ID: "baseline/freeze", Kind: entities.CheckAlways, Definition: passes, At: []entities.CheckAt{{Stage: entities.PreApproval}}, Interval: 1,
			})
		}
		forged[service], err = s.PutSpec(t.Context(), spec)
		require.NoError(t, err)
	}
	digest, err := s.PutManifest(t.Context(), forged)
	require.NoError(t, err)
	return protocol.PublishRequest{
		RequestMeta: protocol.RequestMeta{By: "mallory"}, Hash: newest.Hash, Manifest: digest, Services: len(forged), Store: w.Store, Origin: newest.Origin,
	}
}

// Whoever compiles a publication without the baseline, or with one of his own under its names, gets the one that is in force:
// sent as an update, as a signal, and as a signal to the service itself.
func TestPublicationWithoutTheBaselineGetsIt_G1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	publishes(w, "")
	require.NoError(t, sets(t, w, freeze, "olga", ""))
	w.AwaitThat("web", "the baseline", func(s protocol.Status) bool { return len(journalled(s, "the baseline of")) > 0 })
	request := forges(t, w)
	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Publish, request, &protocol.PublishAnswer{}))
	request.RequestID = "again"
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), protocol.ApplicationID(w.App), "", protocol.Publish, request))
	known := incarnations(t, w)
	message, err := json.Marshal(known[len(known)-1])
	require.NoError(t, err)
	w.Signal("web", protocol.Publish, string(message))
	w.AwaitThat("web", "what was published", func(s protocol.Status) bool { return len(journalled(s, "the baseline of")) > 1 })
	w.Release("web", "v1")
	w.AwaitThat("web", "frozen", func(s protocol.Status) bool {
		return strings.HasPrefix(stage.Channels(s), "staging CONVERGED v1") && frozen(s)
	})
	require.NotContains(t, gates(w.Status("web"), "production"), "mine", "it counts the same word")
	bypass := `{"by":"mallory","version":"v1","channel":"production","condition":"baseline/freeze","reason":"mine"}`
	require.ErrorContains(t, w.Update(w.ID("web"), protocol.Bypass, raw(bypass), &protocol.Answer{}), "mallory may not bypass it; allowed: platform")
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())
}

// What is beyond the limits of the installation, or has people prove themselves elsewhere than its baseline names them, is not
// published, by the CLI's way or any other; what was before stays.
func TestPublicationBeyondTheBaselineIsRefused_G1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{})
	publishes(w, "")
	publishes(w, ", {manualApproval: {}}")
	known := incarnations(t, w)
	tries := func(text, why string) {
		t.Helper()
		require.NoError(t, sets(t, w, text, "olga", ""))
		w.Write(strings.ReplaceAll(strict, "APPROVAL", ", {sharedManualApproval: {name: again}}") + stage.Web)
		_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
		require.ErrorIs(t, err, publish.ErrRefused)
		require.ErrorContains(t, err, why)
		s, err := store.Open(t.Context(), w.Store)
		require.NoError(t, err)
		defer s.Close() // only read
		record, err := s.Number(t.Context(), w.App, 1)
		require.NoError(t, err)
		request := protocol.PublishRequest{RequestMeta: protocol.RequestMeta{By: "mallory"}, Hash: known[0].Hash, Manifest: record.Manifest, Store: w.Store, Origin: record.Origin}
		require.ErrorContains(t, w.Update(protocol.ApplicationID(w.App), protocol.Publish, request, &protocol.PublishAnswer{}), why)
		require.NoError(t, w.Client.SignalWorkflow(t.Context(), protocol.ApplicationID(w.App), "", protocol.Publish, request))
	}
	tries("baseline: {limits: {services: 1}}\n", "has 2 services; the installation allows an application at most 1 (rules 1)")
	tries("baseline: {limits: {releaseChannels: 1}}\n", "has 2 release channels; the installation allows an application at most 1 (rules 2)")
	tries("baseline: {limits: {runtimesOf: [platform]}}\n", "uses runtime "+w.App+"-rt of application "+w.App+"; the installation allows runtimes of one of platform (rules 3)")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		s := standing(t, w.Client, protocol.ApplicationID(w.App))
		return len(s.Refused) == 3, fmt.Sprint(s.Refused)
	})
	require.Equal(t, int64(2), w.Status("web").Incarnation)
}

// Where the installation says who may publish a new application, nobody else does: by the CLI's way, by an update and by a signal,
// with a name that is stated, a token of somebody else or one that an issuer of the application's own would give. Who may does, by
// a token; and its later publications are judged by its own rules.
func TestWhoMayPublishANewApplication_G1(t *testing.T) {
	t.Parallel()
	w, issuer := shared.OwnServerWith(t, embedded.Options{}), idptest.New(t)
	require.NoError(t, sets(t, w, fmt.Sprintf(`identity: {issuer: %q, audience: %q}
authorization:
- {verbs: [publish], applications: [%q], to: [alice@shop.dev]}
`, issuer.URL, idptest.Audience, w.App), "olga", ""))
	w.Write(strings.ReplaceAll(strict, "APPROVAL", "") + stage.Web)
	publishing := func(token string) error {
		_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "alice@shop.dev", Token: token, Fake: true})
		return err
	}
	require.ErrorContains(t, publishing(""), `publish needs proof of identity, since only certain callers may: "token" is missing`)
	require.ErrorContains(t, publishing(issuer.TokenOf(t, "bob@shop.dev")), "bob@shop.dev may not publish; allowed: alice@shop.dev")
	require.ErrorContains(t, publishing(idptest.New(t).TokenOf(t, "alice@shop.dev")), "token")

	id := protocol.ApplicationID(w.App)
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close() // only read
	hash, manifest := compiledInto(t, w, s)
	forged := protocol.PublishRequest{RequestMeta: protocol.RequestMeta{By: "alice@shop.dev"}, Hash: hash, Manifest: manifest, Store: w.Store}
	require.ErrorContains(t, w.Update(id, protocol.Publish, forged, &protocol.PublishAnswer{}), "needs proof")
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), id, "", protocol.Publish, forged))
	forged.Token = issuer.TokenOf(t, "bob@shop.dev")
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), id, "", protocol.Publish, forged))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		now := standing(t, w.Client, id)
		return len(now.Refused) == 2, fmt.Sprint(now.Refused)
	})
	other := protocol.ApplicationID(w.App + "-other")
	_, err = w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: other, TaskQueue: protocol.TaskQueue},
		protocol.ApplicationWorkflow, protocol.ApplicationInput{Application: w.App + "-other", StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(t, err)
	forged.RequestMeta = protocol.RequestMeta{Token: issuer.TokenOf(t, "alice@shop.dev")}
	require.ErrorContains(t, w.Update(other, protocol.Publish, forged, &protocol.PublishAnswer{}), "alice@shop.dev may not publish; allowed: no one")
	numbers, err := s.ListNumbers(t.Context(), w.App)
	require.NoError(t, err)
	require.Empty(t, numbers)

	require.NoError(t, publishing(issuer.TokenOf(t, "alice@shop.dev")))
	var trail protocol.HistoryAnswer
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		lines, err := s.Audit(context.WithoutCancel(t.Context()), w.App, "")
		trail.Entries = lines
		return err == nil && len(lines) > 0, fmt.Sprint(lines, err)
	})
	require.Contains(t, trail.Entries[0].Text, "a new application under rules 1")
	require.Equal(t, "alice@shop.dev", trail.Entries[0].Who.Name)
	require.True(t, trail.Entries[0].Who.Proven)
	publishes(w, ", {manualApproval: {}}") // by whoever its own rules let
}

// compiledInto leaves what is published of a directory in the store, as `apply` does before it is refused.
func compiledInto(t *testing.T, w *stage.World, s *store.Store) (hash, manifest string) {
	t.Helper()
	result, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true, DryRun: true})
	require.NoError(t, err)
	inc, err := s.Incarnation(t.Context(), result.Hash)
	require.NoError(t, err)
	digests, err := filepath.Glob(filepath.Join(strings.TrimPrefix(w.Store, "file://"), "manifests", "*"))
	require.NoError(t, err)
	require.Len(t, digests, 1)
	return inc.Hash(), filepath.Base(digests[0])
}
