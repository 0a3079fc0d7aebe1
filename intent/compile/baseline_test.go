package compile

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
)

func rulesOf(text string) (entities.Rules, error) {
	return Rules(fstest.MapFS{"rules.yaml": &fstest.MapFile{Data: []byte(installationHead + text)}}, "rules.yaml")
}

func TestBaseline_G2(t *testing.T) {
	rules, err := rulesOf(`authorization:
- {verbs: [publish], applications: ["shop-*"], to: ["group:platform"]}
baseline:
  protections:
  - name: year-end
    allowedTimes: {timeZone: Europe/Paris, freezes: [{from: "2026-12-20", to: "2027-01-03", reason: year end}]}
  - name: errors
    prometheus: {url: "http://prometheus:9090", query: "errors{job='${{ service }}', v='${{ version }}'}", lessThan: 0.05}
    lifecycle: [preApproval: {}, postDeployment: {for: 5m}]
    where: {runtimes: [eks-*], releaseChannels: [prod*]}
  approvals:
  - {name: go-live, minApprovers: 2, approvers: ["group:sre"], notReleaser: true, where: {applications: [shop]}}
  bypass: ["group:platform"]
  required: [approve]
  limits: {services: 50, releaseChannels: 10, runtimesOf: [platform]}
`)
	require.NoError(t, err)
	five := 0.05
	require.Equal(t, []entities.Grant{{Verbs: []string{"publish"}, Channels: []string{"application/shop-*"}, To: []string{"group:platform"}}}, rules.Grants)
	require.Equal(t, &entities.Baseline{
		Checks: []entities.BaselineCheck{
			{
				Check: entities.Check{
					ID: "baseline/year-end", Kind: entities.CheckAllowedTimes, Repairs: true, Interval: 5 * time.Minute,
					At: []entities.CheckAt{{Stage: entities.PreApproval}, {Stage: entities.PostApproval}},
				},
				How: entities.CheckDefinition{ID: "baseline/year-end", Kind: entities.CheckAllowedTimes, AllowedTimes: &entities.AllowedTimes{
					TimeZone: "Europe/Paris", Freezes: []entities.Freeze{{From: "2026-12-20", To: "2027-01-03", Reason: "year end"}},
				}},
			},
			{
				Check: entities.Check{
					ID: "baseline/errors", Kind: entities.CheckPrometheus, Interval: 30 * time.Second,
					At: []entities.CheckAt{{Stage: entities.PreApproval}, {Stage: entities.PostDeployment, For: 5 * time.Minute}},
				},
				How: entities.CheckDefinition{ID: "baseline/errors", Kind: entities.CheckPrometheus, Prometheus: &entities.PrometheusQuery{
					URL: "http://prometheus:9090", Query: "errors{job='${{ service }}', v='${{ version }}'}", LessThan: &five,
				}},
				Where: entities.ChannelSelector{Channels: []string{"prod*"}, Runtimes: []string{"eks-*"}},
			},
		},
		Approvals: []entities.BaselineApproval{{
			Condition: entities.Condition{
				ID: "approval/baseline/go-live", Kind: entities.ManualApproval, Topic: "baseline/go-live", MinApprovers: 2, Approvers: []string{"group:sre"}, NotReleaser: true,
			},
			Where: entities.ChannelSelector{Applications: []string{"shop"}},
		}},
		Bypass: []string{"group:platform"}, Required: []string{"approve"},
		Limits: entities.Limits{Services: 50, Channels: 10, RuntimesOf: []string{"platform"}},
	}, rules.Baseline)
	require.NoError(t, rules.Baseline.Check(), "the worker accepts compiled rules")
}

func TestMalformedBaseline_G2(t *testing.T) {
	for text, want := range map[string]string{
		"baseline: {protections: [{name: a, command: {command: [./ok]}}]}\n":                   "rules.yaml:3:45: baseline.protections[0].command: command depends on an application; expected one of allowedTimes, deniedVersions, prometheus, alertmanager, http, cel, always [bad-value]",
		"baseline: {protections: [{name: a}]}\n":                                               `rules.yaml:3:26: baseline.protections[0]: the protection has no kind; expected "ref" or one of allowedTimes, deniedVersions, deniedCommits, prometheus, alertmanager, http, command, job, task, capacity, cel, compare, always [missing-field]`,
		"baseline: {protections: [{name: a, http: {url: \"http://x/${{ labels.tier }}\"}}]}\n": `rules.yaml:3:48: baseline.protections[0].http.url: there is no label "tier" [unknown-name]`,
		"baseline: {approvals: [{name: a}, {name: a, minApprovers: 0}]}\n": `rules.yaml:3:42: baseline.approvals[1].name: two approvals here are named "a"; expected another "name" for one of them [duplicate-name]
rules.yaml:3:59: baseline.approvals[1].minApprovers: 0 approvers are not enough; expected at least 1 [bad-value]`,
		"baseline: {approvals: [{name: a, where: {runtimes: [\"[\"]}}]}\n":                       `rules.yaml:3:53: baseline.approvals[0].where.runtimes[0]: invalid name pattern "["; expected a name, or a pattern such as prod-* [bad-value]`,
		"baseline: {approvals: [{name: a, where: {}}]}\n":                                        `rules.yaml:3:41: baseline.approvals[0].where: nothing is selected; expected applications, releaseChannels or runtimes; omit the field for all [missing-field]`,
		"baseline: {limits: {services: 0}}\n":                                                    `rules.yaml:3:31: baseline.limits.services: 0 would allow nothing; expected at least 1 [bad-value]`,
		"authorization:\n- {verbs: [pause, publish], applications: [shop], to: [alice]}\n":       `rules.yaml:4:43: authorization[0].applications: the configuration of each application grants the other verbs; expected verbs: [publish] in a separate grant [one-of]`,
		"authorization:\n- {verbs: [publish], runtimes: [eu], applications: [a], to: [alice]}\n": `rules.yaml:4:52: authorization[0].applications: "runtimes" and "applications" are both given; expected one of them [one-of]`,
	} {
		_, err := rulesOf(text)
		require.EqualError(t, err, want, text)
	}
}

// No name of an application's own can be taken for one of the baseline, nor stand in its place.
func TestBaselineNamesAreReserved_G2(t *testing.T) {
	for text, want := range map[string]string{
		"protections: [{name: baseline/year-end, always: {verdict: PASS}}]":                                                         `protections[0].name: invalid name "baseline/year-end"`,
		"releaseChannels: [{name: prod, runtimes: [{name: r}], preconditions: [{sharedManualApproval: {name: baseline/go-live}}]}]": `invalid name "baseline/go-live"`,
	} {
		files := fstest.MapFS{"converge.yaml": &fstest.MapFile{Data: []byte("apiVersion: converge/v1\nkind: Application\nname: shop\n" + text + "\n")}}
		_, err := LoadFS(files, "shop", config.Options{})
		require.ErrorContains(t, err, "converge.yaml:4:")
		require.ErrorContains(t, err, want)
	}
}
