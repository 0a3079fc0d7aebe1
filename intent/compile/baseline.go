package compile

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// maxRules bounds the rules of an installation in bytes, because workflows read them in full.
const maxRules = 32 << 10

// placeholderScope is a scope of placeholders for names that are known only when a protection of the baseline is evaluated.
var placeholderScope = substitute.Scope{Application: "${{ application }}", Service: "${{ service }}", Channel: "${{ channel }}", Owner: "the baseline"}

// baseline compiles the rules for all applications.
func (c *compiler) baseline(d identityDecoder, b *config.Baseline) *entities.Baseline {
	if b == nil {
		return nil
	}
	out := &entities.Baseline{Bypass: b.Bypass, Required: b.Required}
	c.checkPeople(d, "baseline.bypass", b.Bypass, "; omit the field to let each application decide")
	checkUses(c, baselineUses(d.Decoder, b.Protections), c.checkProtection)
	for n, use := range baselineUses(d.Decoder, b.Protections) {
		out.Checks = append(out.Checks, c.baselineCheck(d, use, b.Protections[n]))
	}
	first := map[config.Name]bool{}
	for n, a := range b.Approvals {
		at := strict.Index("baseline.approvals", n)
		if first[a.Name] && a.Name != "" {
			c.report(d.Decoder, at+".name", strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("two approvals here are named %q", string(a.Name)), Expected: `another "name" for one of them`})
		}
		first[a.Name] = true
		out.Approvals = append(out.Approvals, entities.BaselineApproval{
			Condition: c.approval(d, at, entities.BaselineID(string(a.Name)), a.ManualApproval), Where: c.compileWhere(d, at+".where", a.Where),
		})
	}
	if n := len(out.Checks) + len(out.Approvals); n > entities.MaxBaseline {
		c.report(d.Decoder, "baseline", strict.Fault{Code: "too-large", Message: fmt.Sprintf("there are %d protections and approvals", n), Expected: fmt.Sprintf("at most %d", entities.MaxBaseline)})
	}
	if l := b.Limits; l != nil {
		out.Limits = entities.Limits{
			Services: c.limitOf(d, "baseline.limits.services", l.Services), Channels: c.limitOf(d, "baseline.limits.releaseChannels", l.ReleaseChannels),
			RuntimesOf: strict.Map(l.RuntimesOf, func(n config.Name) string { return string(n) }),
		}
	}
	return out
}

func baselineUses(d *strict.Decoder, all []config.BaselineProtectionUse) []protectionUse {
	var uses []protectionUse
	for n, p := range all {
		use := config.ProtectionUse{
			ProtectionItem: config.ProtectionItem{Name: p.Name, ProtectionKind: p.ProtectionKind, Interval: p.Interval}, Lifecycle: p.Lifecycle, Repairs: p.Repairs,
		}
		uses = append(uses, protectionUse{ProtectionUse: use, usePosition: newUsePosition(d, strict.Index("baseline.protections", n), "protection", p.Name, "")})
	}
	return uses
}

func (c *compiler) baselineCheck(d identityDecoder, use protectionUse, p config.BaselineProtectionUse) entities.BaselineCheck {
	for _, kind := range use.Kinds() {
		if !kind.Shared() {
			c.report(use.d, use.at+"."+string(kind), strict.Fault{
				Code: "bad-value", Message: fmt.Sprintf("%s depends on an application", kind), Expected: strict.OneOf(sharedKinds()),
			})
			return entities.BaselineCheck{}
		}
	}
	id := entities.BaselineID(use.id)
	how := entities.CheckDefinition{ID: id}
	scope := placeholderScope
	(&fieldCompiler{c: c, d: use.d, at: use.at, scope: &scope}).kind(use.ProtectionKind, &how)
	check := entities.Check{ID: id, Kind: how.Kind, At: stagesOf(use.Lifecycle, how.Kind), Repairs: hasRepairsDefault(use.ProtectionKind), Interval: use.Interval.Or(intervalOf(how.Kind))}
	if use.Repairs != nil {
		check.Repairs = *use.Repairs
	}
	return entities.BaselineCheck{Check: check, How: how, Where: c.compileWhere(d, use.at+".where", p.Where)}
}

func sharedKinds() []string {
	return strict.Map(entities.SharedKinds(), func(k entities.CheckKind) string { return string(k) })
}

// compileWhere checks patterns of names.
func (c *compiler) compileWhere(d identityDecoder, at string, w *config.BaselineWhere) entities.ChannelSelector {
	if w == nil {
		return entities.ChannelSelector{}
	}
	if len(w.Applications)+len(w.ReleaseChannels)+len(w.Runtimes) == 0 && !d.Faulty(at) {
		c.report(d.Decoder, at, strict.Fault{Code: "missing-field", Message: "nothing is selected", Expected: "applications, releaseChannels or runtimes; omit the field for all"})
	}
	c.checkPatterns(d, at+".applications", w.Applications)
	c.checkPatterns(d, at+".releaseChannels", w.ReleaseChannels)
	c.checkPatterns(d, at+".runtimes", w.Runtimes)
	return entities.ChannelSelector{Applications: w.Applications, Channels: w.ReleaseChannels, Runtimes: w.Runtimes}
}

// checkPatterns checks a list of names or name patterns.
func (c *compiler) checkPatterns(d identityDecoder, at string, all []string) {
	if len(all) == 0 && d.Has(at) && !d.Faulty(at) {
		c.report(d.Decoder, at, strict.Fault{Code: "missing-field", Message: "the list is empty", Expected: "at least one; omit the field for all"})
	}
	for n, pattern := range all {
		location := strict.Index(at, n)
		if _, err := path.Match(pattern, ""); (err != nil || pattern == "") && !d.Faulty(location) {
			c.report(d.Decoder, location, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid name pattern %q", strict.Clip(pattern)), Expected: "a name, or a pattern such as prod-*"})
		}
	}
}

// limitOf returns a bound; 0 if there is none.
func (c *compiler) limitOf(d identityDecoder, at string, n *int) int {
	if n == nil {
		return 0
	}
	if *n < 1 && !d.Faulty(at) {
		c.report(d.Decoder, at, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d would allow nothing", *n), Expected: "at least 1"})
	}
	return *n
}

// newApplicationScopes returns the scopes of a grant for new applications.
func (c *compiler) newApplicationScopes(d identityDecoder, at string, grant config.InstallationAuthorization) []string {
	if !d.Has(at + ".applications") {
		return nil
	}
	if !slices.Equal(grant.Verbs, []string{protocol.Publish}) && !d.Faulty(at+".verbs") {
		c.report(d.Decoder, at+".applications", strict.Fault{
			Code: "one-of", Message: "the configuration of each application grants the other verbs", Expected: "verbs: [publish] in a separate grant",
		})
	}
	if len(grant.Runtimes) > 0 {
		c.report(d.Decoder, at+".applications", strict.Fault{Code: "one-of", Message: `"runtimes" and "applications" are both given`, Expected: "one of them"})
	}
	c.checkPatterns(d, at+".applications", grant.Applications)
	return strict.Map(grant.Applications, func(pattern string) string { return entities.ScopeApplications + pattern })
}

// boundRules rejects rules that are too large to be read at each request.
func (c *compiler) boundRules(d identityDecoder, rules entities.Rules) {
	if data, err := json.Marshal(rules); err != nil || len(data) > maxRules {
		c.report(d.Decoder, "kind", strict.Fault{Code: "too-large", Message: fmt.Sprintf("the rules have %d bytes", len(data)), Expected: fmt.Sprintf("at most %d", maxRules)})
	}
}
