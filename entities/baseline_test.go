package entities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func baselineRules() Rules {
	return Rules{
		Identity: &Identity{Issuer: "https://id.shop.dev", Audience: "converge"},
		Baseline: &Baseline{
			Checks: []BaselineCheck{{Check: Check{ID: "baseline/freeze", Kind: CheckAlways}, How: CheckDefinition{ID: "baseline/freeze", Kind: CheckAlways}, Where: ChannelSelector{Runtimes: []string{"eks-*"}}}},
			Approvals: []BaselineApproval{{
				Condition: Condition{ID: "approval/baseline/go", Kind: ManualApproval, Topic: "baseline/go", MinApprovers: 2, Approvers: []string{"group:sre"}},
				Where:     ChannelSelector{Channels: []string{"prod*"}},
			}},
			Bypass: []string{"group:platform"}, Required: []string{"approve"},
		},
	}
}

// A baseline that a spec declares itself, however it was published, is replaced by the one in force.
func TestApplyBaselineReplacesADeclaredOne_G2(t *testing.T) {
	rules := baselineRules()
	declared := func() Spec {
		return Spec{
			Application: "shop", Service: "web", Baseline: &AppliedBaseline{Rules: 9, Bypass: []string{"mallory"}},
			Channels: []ChannelSpec{
				{Name: "staging", Instances: []InstanceSpec{{Name: "main", Runtime: "eks-eu"}}},
				{
					Name: "prod-eu", Instances: []InstanceSpec{{Name: "main", Runtime: "elsewhere"}},
					Checks:     []Check{{ID: "mine"}, {ID: "baseline/freeze", Kind: CheckAlways, Definition: "one that passes"}},
					Conditions: []Condition{{ID: "approval/baseline/go", Kind: ManualApproval, Topic: "baseline/go", MinApprovers: 1}},
				},
			},
		}
	}
	spec := declared()
	rules.ApplyBaseline(3, &spec, nil)
	require.Equal(t, &AppliedBaseline{Rules: 3, Bypass: []string{"group:platform"}}, spec.Baseline)
	freeze := rules.Baseline.Checks[0].Check
	freeze.Definition = DigestOf(rules.Baseline.Checks[0].How)
	require.Equal(t, []Check{freeze}, spec.Channels[0].Checks, "selected by its runtime")
	require.Empty(t, spec.Channels[0].Conditions)
	require.Equal(t, []Check{{ID: "mine"}}, spec.Channels[1].Checks, "not on such a runtime")
	require.Equal(t, []Condition{rules.Baseline.Approvals[0].Condition}, spec.Channels[1].Conditions)
	require.Equal(t, []string{"approve"}, spec.Identity.Required)

	require.NoError(t, spec.CheckBypass("baseline/freeze", Who{Name: "ann", Groups: []string{"platform"}}))
	require.EqualError(t, spec.CheckBypass("approval/baseline/go", Who{Name: "mallory"}),
		"approval/baseline/go belongs to the baseline of the installation, and mallory may not bypass it; allowed: group:platform")
	require.NoError(t, spec.CheckBypass("mine", Who{Name: "mallory"}))

	again := spec
	rules.ApplyBaseline(3, &again, nil)
	require.Equal(t, spec, again)

	moved := declared()
	rules.ApplyBaseline(3, &moved, map[string][]string{"prod-eu": {"eks-eu"}, "staging": nil})
	require.Equal(t, []Check{freeze, {ID: "mine"}}, moved.Channels[1].Checks, "releases still go to such a runtime, regardless of the new configuration")

	none := declared()
	(&Rules{}).ApplyBaseline(0, &none, nil)
	require.Nil(t, none.Baseline)
	require.Equal(t, []Check{{ID: "mine"}}, none.Channels[1].Checks)
	require.Empty(t, none.Channels[1].Conditions)
}

// If the baseline names people, they are proven by tokens of the installation, independent of the application's own identity.
func TestBaselineUsesTheIdentityOfTheInstallation_G3(t *testing.T) {
	rules := baselineRules()
	own := &Identity{Issuer: "https://evil.example", Audience: "converge", Required: []string{"release"}}
	require.EqualError(t, rules.CheckIdentity(own),
		"the baseline of the installation names people by tokens of https://id.shop.dev for converge; `identity` declares another issuer, audience or claims")
	require.Equal(t, &Identity{Issuer: "https://id.shop.dev", Audience: "converge", Required: []string{"approve", "release"}}, rules.IdentityFor(own))
	require.NoError(t, rules.CheckIdentity(nil))

	rules.Baseline = &Baseline{Checks: rules.Baseline.Checks}
	require.NoError(t, rules.CheckIdentity(own), "a protection names no people")
	require.Equal(t, own, rules.IdentityFor(own))
}

func TestFirstPublication_G1(t *testing.T) {
	identity := &Identity{Issuer: "https://id.shop.dev", Required: []string{"configure"}}
	rules := Rules{Identity: identity, Grants: []Grant{
		{Verbs: []string{"*"}, To: []string{"root"}},
		{Verbs: []string{"*"}, Channels: []string{"runtime/eu"}, To: []string{"eve"}},
	}}
	who, grants := rules.FirstPublication("shop", "publish")
	require.Nil(t, who, "no grant names it")
	require.Empty(t, grants)

	rules.Grants = append(rules.Grants, Grant{Verbs: []string{"publish"}, Channels: []string{"application/shop-*"}, To: []string{"ann"}})
	for _, c := range []struct{ application, who, want string }{
		{"shop-eu", "ann", ""},
		{"shop-eu", "root", ""},
		{"shop", "ann", "ann may not publish; allowed: root"},
		{"shop-eu", "eve", "eve may not publish; allowed: root, ann"},
		{"shop-eu", "", "a caller without a name may not publish; allowed: root, ann"},
	} {
		who, grants = rules.FirstPublication(c.application, "publish")
		require.True(t, who.RestrictedByGrant(grants, "publish"), "which requires proof")
		require.False(t, who.RequiresProof("configure"))
		err := Authorize(grants, "publish", nil, Who{Name: c.who})
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.want)
		}
	}
}

func TestBaselineChange(t *testing.T) {
	before, after := baselineRules().Baseline, baselineRules().Baseline
	after.Checks, after.Bypass, after.Limits.Services = nil, nil, 3
	after.Approvals[0].MinApprovers = 1
	require.Equal(t, "changed approval/baseline/go, removed baseline/freeze, removed bypass, added limits", BaselineChange(before, after))
	require.Empty(t, BaselineChange(before, before))
	require.Equal(t, "removed approval/baseline/go, removed baseline/freeze, removed bypass, removed required", BaselineChange(before, nil))
}
