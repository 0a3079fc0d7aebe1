package incarnation

import (
	"cmp"
	"fmt"
	"slices"
)

// Identity is what runtimes know the channel by: the name that it had first.
func (c *Channel) Identity() string { return cmp.Or(c.Key, c.Name) }

// Follow gives the channels of an incarnation the identities that they have in the one before it, nil: none. A channel keeps
// its own for good; one that is renamed from another has that one's. It is an error that a channel bears the name
// which is still the identity of another one.
func Follow(before, inc *Incarnation) (*Incarnation, error) {
	if before == nil {
		return inc, nil
	}
	doc := inc.doc
	doc.Channels = slices.Clone(doc.Channels)
	by, changed := map[string]string{}, false
	for n := range doc.Channels {
		c := &doc.Channels[n]
		key := c.Key
		if c.Key = before.identityOf(c.Name, c.RenamedFrom); c.Key == c.Name {
			c.Key = ""
		}
		if other, taken := by[c.Identity()]; taken {
			return nil, fmt.Errorf("release channels %s and %s would be the same where they run, since one of them was called %s first; choose another name for the new one",
				other, c.Name, c.Identity())
		}
		by[c.Identity()] = c.Name
		changed = changed || c.Key != key
	}
	if !changed {
		return inc, nil
	}
	return New(doc)
}

// identityOf is the identity of a channel of the next incarnation: by its name, or else by the one that it had here.
func (i *Incarnation) identityOf(name, from string) string {
	for _, known := range []string{name, from} {
		if slices.Contains(i.Channels(), known) {
			return i.channel(known).Identity()
		}
	}
	return name
}

// named is what a channel is called here that has an identity; a name that nothing here has, if there is none.
func (i *Incarnation) named(identity string) string {
	at := slices.IndexFunc(i.doc.Channels, func(c Channel) bool { return c.Identity() == identity })
	if at < 0 {
		return identity
	}
	return i.doc.Channels[at].Name
}

// Named says what channels are called here, by the names that they have elsewhere and the identities of those that are called
// otherwise than first.
func (i *Incarnation) Named(name string, keys map[string]string) string {
	return i.named(cmp.Or(keys[name], name))
}

// Keys are the channels that have another name than first, with that.
func (i *Incarnation) Keys() map[string]string {
	keys := map[string]string{}
	for _, c := range i.doc.Channels {
		if c.Key != "" {
			keys[c.Name] = c.Key
		}
	}
	return keys
}
