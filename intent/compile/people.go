package compile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// personRE is the name of a person or of a group, as tokens and callers say them.
var personRE = regexp.MustCompile(`^(group:)?[^\s:][^\s]*$`)

// definePeople compiles who callers are, what they may do, and who is notified.
func (c *compiler) definePeople(app *config.Document[config.Application], doc *incarnation.Document) {
	doc.Identity = c.identity(app)
	for i, grant := range app.Spec.Authorization {
		doc.Grants = append(doc.Grants, c.grant(app, strict.Index("authorization", i), grant))
	}
	first := map[config.Name]int{}
	for i, n := range app.Spec.Notifications {
		at := strict.Index("notifications", i)
		if line, twice := first[n.Name]; twice && n.Name != "" {
			c.report(app.Decoder, at+".name", duplicate("notification", n.Name, app.File, line))
		} else {
			first[n.Name] = app.At(at + ".name").Line
		}
		doc.Notifications = append(doc.Notifications, c.notification(app, at, n))
	}
}

func (c *compiler) identity(app *config.Document[config.Application]) *entities.Identity {
	i := app.Spec.Identity
	if i == nil {
		return nil
	}
	c.plainURL(app, "identity.issuer", i.Issuer)
	c.plainURL(app, "identity.keysUrl", i.KeysURL)
	if app.Has("identity.audience") && !app.Faulty("identity.audience") {
		if fault := notEmpty("whom tokens are made for")(i.Audience); fault != nil {
			c.report(app.Decoder, "identity.audience", *fault)
		}
		c.noSubstitution(app.Decoder, "identity.audience", "an Application", i.Audience)
	}
	return &entities.Identity{
		Issuer: i.Issuer, Audience: i.Audience, KeysURL: i.KeysURL, UserClaim: i.UserClaim, GroupsClaim: i.GroupsClaim, Required: i.Required,
	}
}

// plainURL checks an address of the application, in which nothing is substituted.
func (c *compiler) plainURL(app *config.Document[config.Application], at, text string) {
	if !app.Has(at) || app.Faulty(at) {
		return
	}
	if config.HasSubstitution(text) {
		c.noSubstitution(app.Decoder, at, "an Application", text)
	} else if fault := checkURL(text); fault != nil {
		c.report(app.Decoder, at, *fault)
	}
}

func (c *compiler) grant(app *config.Document[config.Application], at string, a config.Authorization) entities.Grant {
	c.people(app, at+".to", a.To, "")
	return entities.Grant{Verbs: a.Verbs, Channels: c.grantedIn(app, at, a), To: a.To}
}

// grantedIn resolves the channels of a grant; none is all of them.
func (c *compiler) grantedIn(app *config.Document[config.Application], at string, a config.Authorization) []string {
	var channels []string
	byName, bySelector := app.Has(at+".releaseChannels"), app.Has(at+".selector")
	switch {
	case byName && bySelector:
		c.report(app.Decoder, at, strict.Fault{Code: "one-of", Message: `"releaseChannels" and "selector" are both given`, Expected: "one of them"})
	case byName && len(a.ReleaseChannels) == 0 && !app.Faulty(at+".releaseChannels"):
		c.report(app.Decoder, at+".releaseChannels", strict.Fault{Code: "missing-field", Message: "the list is empty", Expected: "at least one, or no such field for all"})
	case bySelector && len(a.Selector) == 0 && !app.Faulty(at+".selector"):
		c.report(app.Decoder, at+".selector", strict.Fault{Code: "no-match", Message: "the selector is empty", Expected: "at least one label"})
	case bySelector:
		channels = c.selected(app.Decoder, at+".selector", a.Selector, c.channelNames())
	}
	for i, name := range a.ReleaseChannels {
		location := strict.Index(at+".releaseChannels", i)
		switch {
		case slices.Contains(channels, string(name)):
			c.report(app.Decoder, location, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("release channel %q is listed twice", string(name))})
		case slices.Contains(c.channelNames(), string(name)):
			channels = append(channels, string(name))
		case !c.partial && !app.Faulty(location):
			c.report(app.Decoder, location, c.unknownChannel(name, c.channelNames()))
		}
	}
	return channels
}

// people checks names of people and groups; or says what else than some may be given.
func (c *compiler) people(app *config.Document[config.Application], at string, all []string, or string) {
	if len(all) == 0 && app.Has(at) && !app.Faulty(at) {
		c.report(app.Decoder, at, strict.Fault{Code: "missing-field", Message: "the list is empty", Expected: "names of people, or of groups as group:NAME" + or})
	}
	seen := map[string]bool{}
	for i, name := range all {
		location := strict.Index(at, i)
		switch {
		case app.Faulty(location):
		case config.HasSubstitution(name):
			c.noSubstitution(app.Decoder, location, "an Application", name)
		case !personRE.MatchString(name):
			c.report(app.Decoder, location, strict.Fault{Code: "bad-name", Message: fmt.Sprintf("%q is no person and no group", strict.Clip(name)), Expected: "a name without spaces, such as alice@shop.dev or group:sre"})
		case seen[name]:
			c.report(app.Decoder, location, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("%q is listed twice", name)})
		}
		seen[name] = true
	}
}

func (c *compiler) notification(app *config.Document[config.Application], at string, n config.Notification) entities.Notification {
	if n.URL.WorkerEnv == "" {
		c.plainURL(app, at+".url", n.URL.Literal)
	}
	events := []string(n.Events)
	if slices.Contains(events, config.Everything) {
		events = n.Events.Choices()
	}
	return entities.Notification{Name: string(n.Name), URL: entities.Value(n.URL), Format: cmp.Or(string(n.Format), "json"), Events: events}
}

// approval compiles an approval: by a channel's own topic, or by a shared one (A14).
func (c *compiler) approval(app *config.Document[config.Application], at, topic string, by config.ManualApproval) entities.Condition {
	needed := 1
	if by.MinApprovers != nil {
		needed = *by.MinApprovers
	}
	c.people(app, at+".approvers", by.Approvers, "; no such field for anybody")
	people := slices.Compact(slices.Sorted(slices.Values(by.Approvers)))
	groups := slices.ContainsFunc(people, func(name string) bool { return strings.HasPrefix(name, "group:") })
	switch {
	case app.Faulty(at + ".minApprovers"):
	case needed < 1:
		c.report(app.Decoder, at+".minApprovers", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d approvers would be none", needed), Expected: "at least 1"})
	case needed > len(people) && len(people) > 0 && !groups:
		c.report(app.Decoder, at+".minApprovers", strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("%d approvers are needed, and only %s may approve", needed, strings.Join(people, ", ")),
			Expected: fmt.Sprintf("at most %d, more approvers, or a group", len(people)),
		})
	}
	return entities.Condition{ID: "approval/" + topic, Kind: entities.ManualApproval, Topic: topic, MinApprovers: needed, Approvers: by.Approvers}
}
