package loosen_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
)

// A spec under the rules of another one is looser than neither, in whatever they differ.
func TestUnderRulesIsLooserThanNeither_G2(t *testing.T) {
	t.Parallel()
	of := loosen.Definitions{
		Check: func(digest string) *entities.CheckDefinition {
			return &entities.CheckDefinition{Kind: entities.CheckPrometheus, Prometheus: &entities.PrometheusQuery{URL: digest, Query: "q"}}
		},
		Extension: func(string) *entities.ExtensionDefinition { return &entities.ExtensionDefinition{} },
	}
	for name, change := range map[string]func(*entities.Spec, *entities.ChannelSpec){
		"nothing":         func(*entities.Spec, *entities.ChannelSpec) {},
		"no conditions":   func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions = nil },
		"fewer approvers": func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[1].MinApprovers = 1 },
		"any caller":      func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[1].Approvers = nil },
		"the releaser":    func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[1].NotReleaser = true },
		"other channels":  func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[0].Channels = []string{"staging", "eu"} },
		"a shorter time":  func(_ *entities.Spec, c *entities.ChannelSpec) { c.Conditions[0].For = time.Hour },
		"no time": func(_ *entities.Spec, c *entities.ChannelSpec) {
			c.Conditions[0].For, c.Conditions[0].Kind = 0, entities.ChannelStable
		},
		"no checks":        func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks = nil },
		"a stage less":     func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At = c.Checks[0].At[1:] },
		"a shorter window": func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].At[1].For = time.Minute },
		"no repairs":       func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].Repairs = false },
		"another query":    func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].Definition = "new" },
		"another kind":     func(_ *entities.Spec, c *entities.ChannelSpec) { c.Checks[0].Kind = entities.CheckAlways },
		"no rollback":      func(_ *entities.Spec, c *entities.ChannelSpec) { c.NoRollback = true },
		"report":           func(_ *entities.Spec, c *entities.ChannelSpec) { c.SetReportOnly() },
		"applies": func(s *entities.Spec, _ *entities.ChannelSpec) {
			s.Runtimes["rt"] = &entities.RuntimeSpec{MaxApplies: 2}
		},
		"gated rollback": func(s *entities.Spec, _ *entities.ChannelSpec) { s.GatedRollback = true },
		"a lower limit":  func(s *entities.Spec, _ *entities.ChannelSpec) { s.NoRollbackBelow = "v3" },
		"hold":           func(s *entities.Spec, _ *entities.ChannelSpec) { s.Maestro.HoldUntil = entities.HoldPromoted },
		"another name": func(s *entities.Spec, _ *entities.ChannelSpec) {
			*s = *s.WithChannelNames(map[string]string{"prod": "production"})
		},
		"a channel more": func(s *entities.Spec, _ *entities.ChannelSpec) {
			s.Channels = append(s.Channels, entities.ChannelSpec{Name: "eu"})
		},
		"rollout in stages": func(_ *entities.Spec, c *entities.ChannelSpec) { c.SetRollout(steps(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, newer := range []bool{true, false} {
				pinned, newest := strictSpec(), strictSpec()
				if newer {
					change(newest, &newest.Channels[0])
				} else {
					change(pinned, &pinned.Channels[0])
				}
				before := []string{entities.DigestOf(pinned), entities.DigestOf(newest)}
				both := loosen.UnderRules(pinned, newest, 5, of)
				require.Equal(t, before, []string{entities.DigestOf(pinned), entities.DigestOf(newest)}, "they are not changed")
				require.Equal(t, int64(5), both.RulesOf)
				require.Equal(t, pinned.ChannelNames(), both.ChannelNames())
				require.Empty(t, texts(loosen.Rules(newest, both, of)), "the newest")
				if at := len(both.Channels[0].Checks) - 1; at > 0 { // two of one name: the other one covers the pinned one
					both.Channels[0].Checks = both.Channels[0].Checks[at:]
					both.Channels[0].Checks[0].ID = "slo"
				}
				require.Empty(t, texts(loosen.Rules(pinned, both, of)), "the pinned one")
			}
		})
	}
}

func steps(instances int) entities.Rollout {
	return entities.Rollout{Steps: []entities.RolloutStep{{Instances: &entities.Amount{Number: instances}}}}
}

// People, notifications and the rollout policy are those of the newest; payloads, instances and channels those of the pinned one.
func TestUnderRulesTakesPeopleOfTheNewest_G2(t *testing.T) {
	t.Parallel()
	pinned, newest := strictSpec(), strictSpec()
	newest.Grants, newest.Identity = []entities.Grant{{Verbs: []string{"*"}, Channels: []string{"production"}, To: []string{"carol"}}}, nil
	newest.Notifications = []entities.Notification{{Name: "chat"}}
	newest.Channels[0].Key, newest.Channels[0].Name = "prod", "production"
	newest.Channels[0].Instances[0].Template = "new"
	newest.Channels[0].SetRollout(steps(1))
	pinned.Channels[0].SetRollout(steps(2))
	pinned.Channels[0].Conditions[1].Approvers = []string{"mallory"}
	both := loosen.UnderRules(pinned, newest, 2, loosen.Definitions{})
	require.Equal(t, []entities.Grant{{Verbs: []string{"*"}, Channels: []string{"prod"}, To: []string{"carol"}}}, both.Grants, "by the name of the channel in the pinned one")
	require.Nil(t, both.Identity)
	require.Equal(t, newest.Notifications, both.Notifications)
	require.Empty(t, both.Channels[0].Instances[0].Template)
	require.Equal(t, steps(1), *both.Channels[0].Rollout)
	require.Equal(t, []string{"alice", "group:sre"}, both.Channels[0].Conditions[1].Approvers)
	markers := 0
	for _, c := range both.Channels[0].Conditions {
		if c.Kind == entities.RolloutMarker {
			markers++
		}
	}
	require.Equal(t, 1, markers)
}

// A spec that is under the rules of two others in turn has each id once.
func TestUnderRulesTwiceHasEachIDOnce_G2(t *testing.T) {
	t.Parallel()
	spec := strictSpec()
	for n, kind := range []entities.CheckKind{entities.CheckAlways, entities.CheckHTTP} {
		newest := strictSpec()
		newest.Channels[0].Checks[0].Kind, newest.Channels[0].Checks[0].Definition = kind, string(kind)
		spec = loosen.UnderRules(spec, newest, int64(n+2), loosen.Definitions{})
	}
	var ids []string
	for _, c := range spec.Channels[0].Checks {
		ids = append(ids, c.ID)
	}
	require.Equal(t, []string{"slo", "slo-pinned-pinned", "slo-pinned"}, ids)
}
