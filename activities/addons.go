package activities

import (
	"context"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
)

// addons are the addons of the services in an incarnation, by the first name of the service and the addon's name.
type addons map[string]map[string]entities.Addon

// addonsTTL is the maximum age of the cached addons of the newest incarnation. All checks that use addons of an application read them.
const addonsTTL = 5 * time.Second

// addons returns those of a service in the newest incarnation, or in the pinned one (D1). A change of addons alone does not change the
// service's rules, so the service is not notified of it; addons are read when needed.
func (a *Activities) addons(ctx context.Context, application, service string) (map[string]entities.Addon, error) {
	hash, err := a.newestHashes.get(application, addonsTTL, func() (string, error) {
		notice, err := a.Store.NewestNotice(ctx, application)
		if store.IsNotFound(err) { // no incarnation with addons was published
			err = nil
		}
		return notice.Incarnation.Hash, err
	})
	if err != nil || hash == "" {
		return nil, err
	}
	all, err := a.addonsByHash.get(hash, maxCacheTTL, func() (addons, error) {
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
