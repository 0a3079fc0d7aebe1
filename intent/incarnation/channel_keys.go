package incarnation

import (
	"cmp"
	"fmt"
	"slices"
)

// Identity is the channel's first name, by which runtimes identify it.
func (c *Channel) Identity() string { return cmp.Or(c.Key, c.Name) }

// InheritChannelKeys gives the channels of an incarnation their identities from the previous one (nil: none). A channel keeps its identity
// permanently. A renamed channel takes the identity of its former name. It is an error if a channel has a name that is still the
// identity of another one.
func InheritChannelKeys(before, inc *Incarnation) (*Incarnation, error) {
	if before == nil {
		return inc, nil
	}
	doc := inc.doc
	doc.Channels = slices.Clone(doc.Channels)
	nameByIdentity, changed := map[string]string{}, false
	for n := range doc.Channels {
		c := &doc.Channels[n]
		key := c.Key
		if c.Key = before.identityOf(c.Name, c.RenamedFrom); c.Key == c.Name {
			c.Key = ""
		}
		if other, duplicate := nameByIdentity[c.Identity()]; duplicate {
			return nil, fmt.Errorf("release channels %s and %s would have the same identity, because one of them was first named %s; choose another name for the new one",
				other, c.Name, c.Identity())
		}
		nameByIdentity[c.Identity()] = c.Name
		changed = changed || c.Key != key
	}
	if !changed {
		return inc, nil
	}
	return New(doc)
}

// identityOf returns the identity of a channel of the next incarnation: by its name, or else by its former name.
func (i *Incarnation) identityOf(name, from string) string {
	for _, known := range []string{name, from} {
		if slices.Contains(i.Channels(), known) {
			return i.channel(known).Identity()
		}
	}
	return name
}

// channelName returns the current name of the channel with an identity. If there is none, it returns a name that no channel has.
func (i *Incarnation) channelName(identity string) string {
	at := slices.IndexFunc(i.doc.Channels, func(c Channel) bool { return c.Identity() == identity })
	if at < 0 {
		return identity
	}
	return i.doc.Channels[at].Name
}

// TranslateChannel returns the name of a channel in this incarnation, given its name in another one and the identities of renamed channels
// there.
func (i *Incarnation) TranslateChannel(name string, keys map[string]string) string {
	return i.channelName(cmp.Or(keys[name], name))
}

// Keys maps the names of renamed channels to their first names.
func (i *Incarnation) Keys() map[string]string {
	keys := map[string]string{}
	for _, c := range i.doc.Channels {
		if c.Key != "" {
			keys[c.Name] = c.Key
		}
	}
	return keys
}
