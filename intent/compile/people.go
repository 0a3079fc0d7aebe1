package compile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// personRE matches the name of a person or a group in tokens and requests.
var personRE = regexp.MustCompile(`^(group:)?[^\s:][^\s]*$`)

// definePeople compiles identities, permissions and notifications.
func (c *compiler) definePeople(app *config.Document[config.Application], doc *incarnation.Document) {
	doc.Identity = c.identity(app)
	c.requireReleaserIdentity(doc.Identity)
	for i, grant := range app.Spec.Authorization {
		at := strict.Index("authorization", i)
		c.checkPeople(applicationDecoder(app), at+".to", grant.To, "")
		doc.Grants = append(doc.Grants, entities.Grant{Verbs: grant.Verbs, Channels: c.grantedIn(app, at, grant), To: grant.To})
	}
	first := map[config.Name]string{}
	for i, n := range app.Spec.Notifications {
		at := strict.Index("notifications", i)
		if place, twice := first[n.Name]; twice && n.Name != "" {
			c.report(app.Decoder, at+".name", duplicate("notification", n.Name, place))
		} else {
			first[n.Name] = app.Location(at + ".name")
		}
		doc.Notifications = append(doc.Notifications, c.notification(app, at, n))
	}
}

// identityDecoder is a document that declares identities, and its kind.
type identityDecoder struct {
	*strict.Decoder
	kind string
}

func applicationDecoder(app *config.Document[config.Application]) identityDecoder {
	return identityDecoder{app.Decoder, "an Application"}
}

func (c *compiler) identity(app *config.Document[config.Application]) *entities.Identity {
	i := app.Spec.Identity
	if i == nil {
		return nil
	}
	out := c.compileIssuer(applicationDecoder(app), i.Issued)
	out.Required, out.Bound, out.BoundExcept = i.Required, i.Bound, i.BoundExcept
	c.checkPeople(applicationDecoder(app), "identity.boundExcept", i.BoundExcept, "")
	return out
}

// compileIssuer checks the issuer of accepted tokens.
func (c *compiler) compileIssuer(d identityDecoder, i config.Issued) *entities.Identity {
	c.plainURL(d, "identity.issuer", i.Issuer)
	c.plainURL(d, "identity.keysUrl", i.KeysURL)
	if d.Has("identity.audience") && !d.Faulty("identity.audience") {
		if fault := notEmpty("the audience of the tokens")(i.Audience); fault != nil {
			c.report(d.Decoder, "identity.audience", *fault)
		}
		c.noSubstitution(d.Decoder, "identity.audience", d.kind, i.Audience)
	}
	if age := i.MaxAge.Or(time.Minute); (age <= 0 || age > entities.MaxTokenAge) && !d.Faulty("identity.maxAge") {
		c.report(d.Decoder, "identity.maxAge", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid age of a token %q", string(i.MaxAge)), Expected: "more than 0, and at most 24h"})
	}
	return &entities.Identity{
		Issuer: i.Issuer, Audience: i.Audience, KeysURL: i.KeysURL, UserClaim: i.UserClaim, GroupsClaim: i.GroupsClaim, MaxAge: i.MaxAge.Or(0),
	}
}

// plainURL checks a URL without substitutions.
func (c *compiler) plainURL(d identityDecoder, at, text string) {
	if !d.Has(at) || d.Faulty(at) {
		return
	}
	if config.HasSubstitution(text) {
		c.noSubstitution(d.Decoder, at, d.kind, text)
	} else if fault := checkURL(text); fault != nil {
		c.report(d.Decoder, at, *fault)
	}
}

// grantedIn resolves the channels of a grant; none means all.
func (c *compiler) grantedIn(app *config.Document[config.Application], at string, a config.Authorization) []string {
	if slices.Contains(a.Verbs, entities.VerbRead) && (app.Has(at+".releaseChannels") || app.Has(at+".selector")) {
		c.report(app.Decoder, at+".verbs", strict.Fault{Code: "bad-value", Message: `"read" is for the whole application`, Expected: "a grant of its own without release channels"})
	}
	var channels []string
	byName, bySelector := app.Has(at+".releaseChannels"), app.Has(at+".selector")
	switch {
	case byName && bySelector:
		c.report(app.Decoder, at, strict.Fault{Code: "one-of", Message: `"releaseChannels" and "selector" are both given`, Expected: "one of them"})
	case byName && len(a.ReleaseChannels) == 0 && !app.Faulty(at+".releaseChannels"):
		c.report(app.Decoder, at+".releaseChannels", strict.Fault{Code: "missing-field", Message: "the list is empty", Expected: "at least one; omit the field for all"})
	case bySelector && len(a.Selector) == 0 && !app.Faulty(at+".selector"):
		c.report(app.Decoder, at+".selector", strict.Fault{Code: "no-match", Message: "the selector is empty", Expected: "at least one label"})
	case bySelector:
		channels = c.matchingChannels(app.Decoder, at+".selector", a.Selector, c.channelNames())
	}
	return c.checkListed(app.Decoder, at+".releaseChannels", a.ReleaseChannels, channels)
}

// checkListed adds the channels of a list to the selected ones.
func (c *compiler) checkListed(d *strict.Decoder, at string, names []config.Name, selected []string) []string {
	for i, name := range names {
		location := strict.Index(at, i)
		switch {
		case slices.Contains(selected, string(name)):
			c.report(d, location, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("release channel %q is listed twice", string(name))})
		case slices.Contains(c.channelNames(), string(name)):
			selected = append(selected, string(name))
		case !c.partial && !d.Faulty(location):
			c.report(d, location, c.unknownChannel(name, c.channelNames()))
		}
	}
	return selected
}

// checkPeople checks names of people and groups. The text alternatives describes other allowed values.
func (c *compiler) checkPeople(d identityDecoder, at string, all []string, alternatives string) {
	if len(all) == 0 && d.Has(at) && !d.Faulty(at) {
		c.report(d.Decoder, at, strict.Fault{Code: "missing-field", Message: "the list is empty", Expected: "names of people, or of groups as group:NAME" + alternatives})
	}
	seen := map[string]bool{}
	for i, name := range all {
		location := strict.Index(at, i)
		switch {
		case d.Faulty(location):
		case config.HasSubstitution(name):
			c.noSubstitution(d.Decoder, location, d.kind, name)
		case !personRE.MatchString(name):
			c.report(d.Decoder, location, strict.Fault{Code: "bad-name", Message: fmt.Sprintf("%q is neither a person nor a group", strict.Clip(name)), Expected: "a name without spaces, such as alice@shop.dev or group:sre"})
		case entities.CheckName(name) != nil:
			c.report(d.Decoder, location, strict.Fault{Code: "bad-name", Message: entities.CheckName(name).Error(), Expected: "a name that cannot be mistaken for another"})
		case seen[name]:
			c.report(d.Decoder, location, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("%q is listed twice", name)})
		}
		seen[name] = true
	}
}

func (c *compiler) notification(app *config.Document[config.Application], at string, n config.Notification) entities.Notification {
	if !entities.Value(n.URL).IsSecret() {
		c.plainURL(applicationDecoder(app), at+".url", n.URL.Literal)
	}
	events := []string(n.Events)
	if slices.Contains(events, config.Everything) {
		events = n.Events.Choices()
	}
	return entities.Notification{Name: string(n.Name), URL: entities.Value(n.URL), Format: cmp.Or(string(n.Format), "json"), Events: events}
}

// approval compiles an approval with a topic of the channel or a shared topic (A14).
func (c *compiler) approval(d identityDecoder, at, topic string, by config.ManualApproval) entities.Condition {
	needed := 1
	if by.MinApprovers != nil {
		needed = *by.MinApprovers
	}
	c.checkPeople(d, at+".approvers", by.Approvers, "; omit the field to allow any caller")
	people := slices.Compact(slices.Sorted(slices.Values(by.Approvers)))
	groups := slices.ContainsFunc(people, func(name string) bool { return strings.HasPrefix(name, "group:") })
	switch {
	case d.Faulty(at + ".minApprovers"):
	case needed < 1:
		c.report(d.Decoder, at+".minApprovers", strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d approvers are not enough", needed), Expected: "at least 1"})
	case needed > len(people) && len(people) > 0 && !groups:
		c.report(d.Decoder, at+".minApprovers", strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("%d approvers are needed, and only %s may approve", needed, strings.Join(people, ", ")),
			Expected: fmt.Sprintf("at most %d, more approvers, or a group", len(people)),
		})
	}
	return entities.Condition{ID: "approval/" + topic, Kind: entities.ManualApproval, Topic: topic, MinApprovers: needed, Approvers: by.Approvers, NotReleaser: by.NotReleaser}
}

// defineConditions resolves the preconditions of every channel to channels (A8).
func (c *compiler) defineConditions(app *config.Document[config.Application]) {
	for i, channel := range app.Spec.ReleaseChannels {
		at := slices.IndexFunc(c.channels, func(d incarnation.Channel) bool { return d.Name == string(channel.Name) })
		if at < 0 || channelNamed(app.Spec.ReleaseChannels, channel.Name) != i {
			continue // already reported as a duplicate name
		}
		for j, precondition := range channel.Preconditions {
			path := strict.Index(strict.Index("releaseChannels", i)+".preconditions", j)
			c.defineCondition(app, path, precondition, &c.channels[at])
		}
	}
}

// channelNamed returns the index of the first channel with a name; -1: none.
func channelNamed(all []config.ReleaseChannel, name config.Name) int {
	return slices.IndexFunc(all, func(r config.ReleaseChannel) bool { return r.Name == name })
}

func (c *compiler) defineCondition(app *config.Document[config.Application], path string, precondition config.Precondition, channel *incarnation.Channel) {
	switch given := precondition.Given(); {
	case app.Faulty(path):
	case len(given) == 0:
		c.report(app.Decoder, path, strict.Fault{Code: "missing-field", Message: "this precondition is empty", Expected: strict.OneOf(config.PreconditionNames)})
	case len(given) > 1:
		c.report(app.Decoder, path, strict.Fault{Code: "one-of", Message: fmt.Sprintf("%q and %q are both given", given[0], given[1]), Expected: "one of them, and the other as a separate precondition"})
	}
	c.approvals(app, path, precondition, channel)
	c.channelDependency(app, path, precondition, channel)
	stable := precondition.ReleaseChannelStable
	if stable == nil {
		return
	}
	at := path + ".releaseChannelStable"
	condition := entities.Condition{
		ID: "channel-stable/" + string(stable.ReleaseChannel), Kind: entities.ChannelStable,
		Channels: c.selectChannels(app.Decoder, at, channelSelection{stable.ReleaseChannel, stable.Selector, c.channelNames()}),
	}
	if stable.Selector != nil {
		condition.ID = "channel-stable/" + selectorText(stable.Selector)
	}
	if condition.For = stable.For.Or(0); condition.For > 0 {
		condition.Kind = entities.ChannelStableFor
	}
	if isFalse(stable.Sticky) {
		condition.Kind = entities.ChannelHealthy
	}
	switch {
	case len(condition.Channels) == 0: // already reported
	case stable.Selector != nil && slices.Contains(condition.Channels, channel.Name):
		c.report(app.Decoder, at+".selector", strict.Fault{
			Code: "cycle", Message: fmt.Sprintf("release channel %s would wait for itself: the selector matches it too", channel.Name),
			Expected: "labels that this channel does not have",
		})
	default:
		c.addCondition(app, path, condition, channel)
	}
}

func (c *compiler) addCondition(app *config.Document[config.Application], path string, condition entities.Condition, channel *incarnation.Channel) {
	if slices.ContainsFunc(channel.Conditions, func(o entities.Condition) bool { return o.ID == condition.ID }) {
		c.report(app.Decoder, path, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("this channel has the precondition %q twice", condition.ID)})
		return
	}
	channel.Conditions = append(channel.Conditions, condition)
}

// approvals compiles the preconditions that people approve.
func (c *compiler) approvals(app *config.Document[config.Application], path string, p config.Precondition, channel *incarnation.Channel) {
	if p.ManualApproval != nil {
		c.addCondition(app, path, c.approval(applicationDecoder(app), path+".manualApproval", channel.Name, *p.ManualApproval), channel)
	}
	shared := p.SharedManualApproval
	switch {
	case shared == nil || shared.Name == "" || shared.Name.Check() != nil:
	case slices.Contains(c.channelNames(), string(shared.Name)):
		c.report(app.Decoder, path+".sharedManualApproval.name", strict.Fault{
			Code: "duplicate-name", Message: fmt.Sprintf("%q is a release channel, and its name is reserved for its own approval", string(shared.Name)), Expected: "another name",
		})
	default:
		c.addCondition(app, path, c.approval(applicationDecoder(app), path+".sharedManualApproval", string(shared.Name), shared.ManualApproval), channel)
	}
}

// requireReleaserIdentity requires proof of identity for releases and publications if an approval depends on the releaser.
func (c *compiler) requireReleaserIdentity(identity *entities.Identity) {
	excludesReleaser := func(channel incarnation.Channel) bool {
		return slices.ContainsFunc(channel.Conditions, func(o entities.Condition) bool { return o.NotReleaser })
	}
	if identity == nil || slices.Contains(identity.Required, config.Everything) || !slices.ContainsFunc(c.channels, excludesReleaser) {
		return
	}
	for _, verb := range [...]string{protocol.Publish, protocol.Release} {
		if !slices.Contains(identity.Required, verb) {
			identity.Required = append(slices.Clone(identity.Required), verb)
		}
	}
}

// sortChannels sorts the channels by their dependencies, and otherwise keeps the file order. It rejects and names a cycle (A1).
func (c *compiler) sortChannels(app *config.Document[config.Application]) []incarnation.Channel {
	ordered, cycle := sortTopologically(c.channels, func(channel incarnation.Channel) string { return channel.Name }, incarnation.Upstream)
	if len(cycle) > 0 {
		i := slices.IndexFunc(app.Spec.ReleaseChannels, func(r config.ReleaseChannel) bool { return string(r.Name) == cycle[0] })
		c.report(app.Decoder, strict.Index("releaseChannels", i)+".preconditions",
			strict.Fault{Code: "cycle", Message: "release channels wait for each other: " + strings.Join(cycle, " → ")})
	}
	return ordered
}
