package activities

import (
	"context"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
)

// addons are what the services of an incarnation carry, by what the services were called first, and the addons' names.
type addons map[string]map[string]entities.Addon

// addonsFor is how old what is known of the newest incarnation may be: all checks of an application that are told of addons ask.
const addonsFor = 5 * time.Second

// addons are those of a service in the newest incarnation, or the one that is pinned (D1). A change of them alone is none of the
// service's rules, so that it is told of none: they are read where they are asked for.
func (a *Activities) addons(ctx context.Context, application, service string) (map[string]entities.Addon, error) {
	hash, err := a.inForce.get(application, addonsFor, func() (string, error) {
		notice, err := a.Store.NewestNotice(ctx, application)
		if store.IsNotFound(err) { // nothing was published since there are addons
			err = nil
		}
		return notice.Incarnation.Hash, err
	})
	if err != nil || hash == "" {
		return nil, err
	}
	all, err := a.addonsIn.get(hash, longestLately, func() (addons, error) {
		inc, err := a.Store.Incarnation(ctx, hash)
		if err != nil {
			return nil, err
		}
		all := addons{}
		for _, key := range inc.ServiceKeys() {
			if s, ok := inc.Service(key); ok && len(s.Addons) > 0 {
				all[key] = s.Addons
			}
		}
		return all, nil
	})
	return all[service], err
}
