package loosen_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
)

// strictSpec is a service in one channel with a requirement of every kind.
func strictSpec() *entities.Spec {
	return &entities.Spec{
		Channels: []entities.ChannelSpec{{
			Name:      "prod",
			Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt"}},
			Conditions: []entities.Condition{
				{ID: "channel-stable/tier=test", Kind: entities.ChannelHealthy, For: 168 * time.Hour, Channels: []string{"canary", "staging"}},
				{ID: "approval/go", Kind: entities.ManualApproval, Topic: "go", MinApprovers: 2, Approvers: []string{"alice", "group:sre"}},
			},
			Checks: []entities.Check{{
				ID: "slo", Kind: entities.CheckPrometheus, Definition: "old", Repairs: true,
				At: []entities.CheckAt{{Stage: entities.Deployment, Fails: true}, {Stage: entities.PostDeployment, Delay: time.Minute, For: 10 * time.Minute}, {Stage: entities.Postcondition, For: 5 * time.Minute}},
			}},
			Extensions: []entities.Extension{{Name: "migrate", Stage: entities.PostApproval, Definition: "old", Every: time.Hour}},
		}},
		Runtimes: map[string]*entities.RuntimeSpec{"rt": {ApproveApplies: true}},
		Grants:   []entities.Grant{{Verbs: []string{"approve", "bypass"}, To: []string{"alice"}}, {Verbs: []string{"*"}, Channels: []string{"prod"}, To: []string{"group:sre"}}},
		Identity: &entities.Identity{Issuer: "https://id", Required: []string{"approve", "bypass"}},
	}
}

func texts(all []entities.Loosening) string {
	var lines []string
	for _, l := range all {
		lines = append(lines, strings.TrimPrefix(l.Channel+": "+l.Text, ": "))
	}
	return strings.Join(lines, "\n")
}

// Relaxed requirements are found, by name and by value; stricter ones are not.
func TestRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*entities.Spec, *entities.ChannelSpec)
		want   string
	}{
		"nothing": {func(*entities.Spec, *entities.ChannelSpec) {}, ""},
		"more": {func(s *entities.Spec, c *entities.ChannelSpec) {
			c.Conditions[1].MinApprovers, c.Conditions[1].Approvers = 3, []string{"alice"}
			c.Conditions[0].For *= 2
			c.Checks[0].At[1].For, s.Identity.Required = time.Hour, []string{"*"}
			c.Checks = append(c.Checks, entities.Check{ID: "more"})
		}, ""},
		"no condition":    {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions = c.Conditions[:1] }, "prod: no approval/go"},
		"fewer approvers": {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[1].MinApprovers = 1 }, "prod: approval/go from 1 instead of 2"},
		"other approvers": {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[1].Approvers = []string{"bob", "alice"} }, "prod: approval/go from bob, too"},
		"any caller":      {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[1].Approvers = nil }, "prod: approval/go from any caller"},
		"fewer channels":  {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[0].Channels = []string{"staging"} }, "prod: channel-stable/tier=test without canary"},
		"a shorter time":  {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[0].For = 24 * time.Hour }, "prod: channel-stable/tier=test for 24h instead of for 168h"},
		"no time":         {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[0].For = 0 }, "prod: channel-stable/tier=test at any time instead of for 168h"},
		"sticky": {func(_ *entities.Spec, c *entities.ChannelSpec) {
			c.Conditions[0].Kind = entities.ChannelStableFor
		}, "prod: channel-stable/tier=test without requiring current health"},
		"no check":         {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks = nil }, "prod: no slo"},
		"a stage less":     {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At = c.Checks[0].At[1:] }, "prod: slo: not at deployment"},
		"block":            {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At[0].Fails = false }, "prod: slo: at deployment it blocks instead of failing"},
		"a shorter window": {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At[1].For = time.Minute }, "prod: slo: watches for 2m0s instead of 11m0s"},
		"a later window":   {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At[1].Delay = 5 * time.Minute }, "prod: slo: watches from 5m0s on instead of 1m0s"},
		"a longer wait":    {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At[2].For = time.Hour }, "prod: slo: it may take 1h0m0s instead of 5m0s to pass"},
		"a shorter wait":   {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At[2].For = time.Minute }, ""},
		"repairs":          {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].Repairs = false }, "prod: slo: repairs do not wait for it"},
		"another kind": {func(_ *entities.Spec, c *entities.ChannelSpec) {
			c.Checks[0].Kind, c.Checks[0].Definition = entities.CheckAlways, "new"
		}, "prod: slo: evaluated by always instead of prometheus"},
		"lost":              {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].Definition = "new" }, "prod: slo: evaluated differently; the previous definition is not known any more"},
		"no extension":      {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Extensions = nil }, "prod: no extension/migrate"},
		"a later extension": {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Extensions[0].Stage = entities.PostDeployment }, "prod: extension/migrate at postDeployment instead of postApproval"},
		"rarer":             {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Extensions[0].Every = 2 * time.Hour }, "prod: extension/migrate every 2h instead of every 1h"},
		"only once":         {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Extensions[0].Every = 0 }, "prod: extension/migrate once instead of every 1h"},
		"another command":   {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Extensions[0].Definition = "new" }, "prod: extension/migrate runs something else"},
		"no rollback":       {func(_ *entities.Spec, c *entities.ChannelSpec) { c.NoRollback = true }, "prod: failed releases are not rolled back"},
		"applies":           {func(s *entities.Spec, _ *entities.ChannelSpec) { s.Runtimes["rt"] = &entities.RuntimeSpec{} }, "prod: applies on rt need no approval"},
		"another channel":   {func(_ *entities.Spec, c *entities.ChannelSpec) { c.Name, c.Checks = "new", nil }, ""},
		"a grant less":      {func(s *entities.Spec, _ *entities.ChannelSpec) { s.Grants = nil }, "any caller may approve\nany caller may bypass\nany caller may do what no other grant names"},
		"granted to more":   {func(s *entities.Spec, _ *entities.ChannelSpec) { s.Grants[0].To = []string{"alice", "bob"} }, "bob may approve\nbob may bypass"},
		"granted by name": {
			func(s *entities.Spec, _ *entities.ChannelSpec) {
				s.Grants = append(s.Grants, entities.Grant{Verbs: []string{"release"}, To: []string{"bob"}})
			},
			"bob may release",
		},
		"granted in more": {
			func(s *entities.Spec, _ *entities.ChannelSpec) { s.Grants[1].Channels = nil },
			"group:sre may approve\ngroup:sre may bypass\ngroup:sre may do what no other grant names",
		},
		"no proof":       {func(s *entities.Spec, _ *entities.ChannelSpec) { s.Identity.Required = []string{"approve"} }, "bypass requires no proven identity"},
		"no identity":    {func(s *entities.Spec, _ *entities.ChannelSpec) { s.Identity = nil }, "identities are not verified"},
		"another issuer": {func(s *entities.Spec, _ *entities.ChannelSpec) { s.Identity.Issuer = "https://evil" }, "identities are verified differently, by https://evil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := strictSpec()
			c.change(now, &now.Channels[0])
			of := loosen.Definitions{
				Check: func(string) *entities.CheckDefinition { return nil },
				Extension: func(digest string) *entities.ExtensionDefinition {
					return &entities.ExtensionDefinition{Command: entities.Command{Argv: []string{digest}}}
				},
			}
			require.Equal(t, c.want, texts(loosen.Rules(strictSpec(), now, of)))
		})
	}
	require.Empty(t, loosen.Rules(nil, strictSpec(), loosen.Definitions{}))
	require.Empty(t, loosen.Rules(strictSpec(), &entities.Spec{}, loosen.Definitions{}), "it is no longer declared")
}

// The values of a check are ordered where they can be.
func TestValues(t *testing.T) {
	t.Parallel()
	n := func(f float64) *float64 { return &f }
	query := func(less, greater *float64) entities.CheckDefinition {
		return entities.CheckDefinition{Prometheus: &entities.PrometheusQuery{URL: "u", Query: "q", LessThan: less, GreaterThan: greater}}
	}
	times := func(t entities.AllowedTimes) entities.CheckDefinition {
		return entities.CheckDefinition{AllowedTimes: &t}
	}
	http := func(statuses ...int) entities.CheckDefinition {
		return entities.CheckDefinition{HTTP: &entities.HTTPCheck{URL: "u", Statuses: statuses}}
	}
	alerts := func(m map[string]string) entities.CheckDefinition {
		return entities.CheckDefinition{Alertmanager: &entities.Alerts{URL: "u", Matchers: m}}
	}
	denied := func(v ...string) entities.CheckDefinition {
		return entities.CheckDefinition{DeniedVersions: &entities.DeniedVersions{Versions: v}}
	}
	always := func(v entities.Verdict) entities.CheckDefinition {
		return entities.CheckDefinition{Always: &entities.AlwaysCheck{Verdict: v}}
	}
	command := func(dir string, args ...string) entities.CheckDefinition {
		return entities.CheckDefinition{Dir: dir, Command: &entities.CheckRun{Command: entities.Command{Argv: args}}}
	}
	expression := func(text string, fails bool) entities.CheckDefinition {
		return entities.CheckDefinition{CEL: &entities.CELCheck{Expression: text, Message: text + fmt.Sprint(fails), Fails: fails}}
	}
	freeze := entities.Freeze{From: "2026-12-20", To: "2027-01-02", Reason: "New Year"}
	for name, c := range map[string]struct {
		old, now entities.CheckDefinition
		want     string
	}{
		"raised":              {query(n(0.05), nil), query(n(0.5), nil), "less than 0.5 instead of 0.05"},
		"lowered":             {query(n(0.05), nil), query(n(0.01), nil), ""},
		"no limit":            {query(n(0.05), n(1)), query(nil, n(0.5)), "less than anything instead of 0.05\ngreater than 0.5 instead of 1"},
		"another query":       {query(n(1), nil), entities.CheckDefinition{Prometheus: &entities.PrometheusQuery{URL: "v", Query: "0", LessThan: n(1), Empty: "pass"}}, "runs another query\nqueries v instead of u\npasses without a sample"},
		"a dropped freeze":    {times(entities.AllowedTimes{Freezes: []entities.Freeze{freeze}}), times(entities.AllowedTimes{}), "no freeze from 2026-12-20 to 2027-01-02 (New Year)"},
		"a shorter freeze":    {times(entities.AllowedTimes{Freezes: []entities.Freeze{freeze}}), times(entities.AllowedTimes{Freezes: []entities.Freeze{{From: "2026-12-20", To: "2026-12-31"}}}), "no freeze from 2026-12-20 to 2027-01-02 (New Year)"},
		"a longer freeze":     {times(entities.AllowedTimes{Freezes: []entities.Freeze{freeze}}), times(entities.AllowedTimes{Freezes: []entities.Freeze{{From: "2026-12-19", To: "2027-01-02"}}}), ""},
		"more open":           {times(entities.AllowedTimes{Windows: []entities.TimeWindow{{Days: "Mon"}}}), times(entities.AllowedTimes{Windows: []entities.TimeWindow{{Days: "Mon"}, {Days: "Fri", Hours: "09:00-10:00"}}}), "open Fri 09:00-10:00"},
		"always open":         {times(entities.AllowedTimes{TimeZone: "UTC", Windows: []entities.TimeWindow{{Days: "Mon"}}}), times(entities.AllowedTimes{TimeZone: "CET"}), "in the time zone CET instead of UTC\nopen at any time"},
		"holidays":            {times(entities.AllowedTimes{HolidayCountries: []string{"FR"}, Holidays: []string{"2026-12-24"}}), times(entities.AllowedTimes{}), "open on holidays of FR\nopen on 2026-12-24"},
		"no longer denied":    {denied("v1", "v13*"), denied("v1", "v2"), "does not deny v13*"},
		"statuses":            {http(204), http(), "any status of 200 to 299 passes"},
		"statuses by default": {http(), http(200, 503), "status 503 passes"},
		"matchers":            {alerts(map[string]string{"service": "web"}), alerts(map[string]string{"service": "web", "severity": "page"}), "only alerts with severity=page"},
		"fewer matchers":      {alerts(map[string]string{"service": "web"}), alerts(nil), ""},
		"always":              {always(entities.Fail), always(entities.Pass), "always passes"},
		"another command":     {command("/a", "x"), command("/a", "true"), "evaluated differently"},
		"another expression":  {expression("true", false), expression("1 < 2", true), "evaluated by another expression"},
		"waits when false":    {expression("true", true), expression("true", false), "waits instead of failing"},
		"another directory":   {command("/a", "x"), command("/b", "x"), ""},
		"configuration":       {entities.CheckDefinition{ConfigRollout: &entities.ConfigRollout{MaxFailures: 1}}, entities.CheckDefinition{ConfigRollout: &entities.ConfigRollout{MaxFailures: 2}}, "evaluated differently"},
		"capacity":            {entities.CheckDefinition{Capacity: &entities.CapacityCheck{Use: "a"}}, entities.CheckDefinition{Capacity: &entities.CapacityCheck{Use: "0"}}, "evaluated differently"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := func(definition string) *entities.Spec {
				return &entities.Spec{Channels: []entities.ChannelSpec{{Name: "prod", Checks: []entities.Check{{ID: "x", Kind: kind(&c.old), Definition: definition}}}}}
			}
			check := func(digest string) *entities.CheckDefinition {
				return map[string]*entities.CheckDefinition{"old": &c.old, "now": &c.now}[digest]
			}
			got := texts(loosen.Rules(spec("old"), spec("now"), loosen.Definitions{Check: check}))
			require.Equal(t, c.want, strings.ReplaceAll(got, "prod: x: ", ""))
		})
	}
}

func kind(d *entities.CheckDefinition) entities.CheckKind {
	for _, of := range []struct {
		set  bool
		kind entities.CheckKind
	}{
		{d.AllowedTimes != nil, entities.CheckAllowedTimes},
		{d.DeniedVersions != nil, entities.CheckDeniedVersions},
		{d.Prometheus != nil, entities.CheckPrometheus},
		{d.Alertmanager != nil, entities.CheckAlertmanager},
		{d.HTTP != nil, entities.CheckHTTP},
		{d.Always != nil, entities.CheckAlways},
		{d.Command != nil, entities.CheckCommand},
		{d.CEL != nil, entities.CheckCEL},
	} {
		if of.set {
			return of.kind
		}
	}
	return entities.CheckCapacity
}

// A renamed channel hides no relaxation, and is not one itself.
func TestRulesOfARenamedChannel(t *testing.T) {
	t.Parallel()
	now := strictSpec()
	now.Channels[0].Name, now.Channels[0].Key = "live", "prod"
	now.Grants[1].Channels = []string{"live"}
	require.Empty(t, texts(loosen.Rules(strictSpec(), now, loosen.Definitions{})))
	now.Channels[0].Conditions[1].MinApprovers = 1
	require.Equal(t, "live: approval/go from 1 instead of 2", texts(loosen.Rules(strictSpec(), now, loosen.Definitions{})))
}

// A manual rollback that no longer passes the gates is a relaxation.
func TestRulesOfRollbacks(t *testing.T) {
	t.Parallel()
	strict := strictSpec()
	strict.GatedRollback = true
	require.Equal(t, "a manual rollback skips the gates", texts(loosen.Rules(strict, strictSpec(), loosen.Definitions{})))
	require.Empty(t, texts(loosen.Rules(strictSpec(), strict, loosen.Definitions{})))
	below := func(version string) *entities.Spec {
		r := strictSpec()
		r.NoRollbackBelow = version
		return r
	}
	for _, lower := range []string{"", "v9", "2026-11-20"} {
		require.Equal(t, "a rollback may go below v10", texts(loosen.Rules(below("v10"), below(lower), loosen.Definitions{})))
	}
	require.Empty(t, texts(loosen.Rules(below("v10"), below("v11"), loosen.Definitions{})))
	require.Empty(t, texts(loosen.Rules(below(""), below("v11"), loosen.Definitions{})))
}

// A channel that is no longer kept for its release is a relaxation; another strategy is not.
func TestRulesOfHoldUntil_B3_G2(t *testing.T) {
	t.Parallel()
	kept := strictSpec()
	kept.Maestro = entities.Maestro{Strategy: "train", HoldUntil: entities.HoldPromoted}
	now := strictSpec()
	now.Maestro.Strategy = "immediate"
	require.Equal(t, "no channel is held for its release", texts(loosen.Rules(kept, now, loosen.Definitions{})))
	require.Empty(t, texts(loosen.Rules(now, kept, loosen.Definitions{})))
}

// A dependency on a renamed service is the same dependency.
func TestRenamedDependencyIsNotLooser(t *testing.T) {
	waiting := func(name string, others map[string]string) *entities.Spec {
		return &entities.Spec{Others: others, Channels: []entities.ChannelSpec{{Name: "production", Checks: []entities.Check{
			{ID: "service-stable/" + name + "@staging", Kind: entities.CheckServiceStable, Definition: name},
		}}}}
	}
	of := loosen.Definitions{Check: func(digest string) *entities.CheckDefinition {
		return &entities.CheckDefinition{Dependency: &entities.Dependency{Service: digest, Channel: "staging"}}
	}}
	web, frontend := waiting("web", nil), waiting("frontend", map[string]string{"frontend": "web"})
	ui := waiting("ui", map[string]string{"ui": "web"})
	for _, c := range [][2]*entities.Spec{{web, frontend}, {frontend, ui}, {ui, web}, {web, web}} {
		require.Empty(t, loosen.Rules(c[0], c[1], of))
	}
	require.NotEmpty(t, loosen.Rules(web, waiting("frontend", nil), of), "another service")
	require.NotEmpty(t, loosen.Rules(frontend, waiting("api", map[string]string{"frontend": "web"}), of))
}

// A change of a channel from report-only to enforced is a relaxation; the reverse is stricter (A25).
func TestEnforcingIsLooserThanReporting_A25(t *testing.T) {
	t.Parallel()
	reports := strictSpec()
	reports.Channels[0].SetReportOnly()
	require.Empty(t, loosen.Rules(strictSpec(), reports, loosen.Definitions{}))
	require.Equal(t, "prod: Converge applies instead of only reporting", texts(loosen.Rules(reports, strictSpec(), loosen.Definitions{})))
}

// Another rollout policy of a fleet may be a relaxation, because policies have no order. A policy where there was none is stricter (D24).
func TestRulesOfRollouts_D24(t *testing.T) {
	t.Parallel()
	inSteps := func(first int) *entities.Spec {
		s := strictSpec()
		s.Channels[0].SetRollout(entities.Rollout{Steps: []entities.RolloutStep{{Instances: &entities.Amount{Number: first}}, {Pause: time.Hour}}})
		return s
	}
	require.Empty(t, loosen.Rules(strictSpec(), inSteps(1), loosen.Definitions{}))
	require.Empty(t, loosen.Rules(inSteps(1), inSteps(1), loosen.Definitions{}))
	require.Equal(t, "prod: releases go to all at once instead of 1, pause 1h", texts(loosen.Rules(inSteps(1), strictSpec(), loosen.Definitions{})))
	require.Equal(t, "prod: releases go to 2, pause 1h instead of 1, pause 1h", texts(loosen.Rules(inSteps(1), inSteps(2), loosen.Definitions{})))
}
