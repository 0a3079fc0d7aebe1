package checks

import (
	"context"
	"path"

	"github.com/converge-engine/converge/entities"
)

// deniedVersions fails versions that match a glob, by the version that was named, by the full one, or by a part of that: what values
// came to, and the values (A20).
type deniedVersions struct{}

func (deniedVersions) Evaluate(_ context.Context, a Asked) (entities.CheckReading, error) {
	d := a.Definition.DeniedVersions
	if d == nil {
		return incomplete(a)
	}
	for _, pattern := range d.Versions { // all of them first: a broken one must not lie in wait for a match
		if _, err := path.Match(pattern, ""); err != nil {
			return unevaluated("%q is no pattern for versions: %w", pattern, err)
		}
	}
	base, values := entities.SplitVersion(a.Evaluation.FullVersion)
	for _, pattern := range d.Versions {
		for _, version := range append([]string{a.version(), a.Evaluation.FullVersion, base}, values...) {
			if hit, _ := path.Match(pattern, version); !hit { // patterns are good: see above
				continue
			}
			why := entities.Because(d.Reason)
			if pattern == version {
				return fail("%s is denied%s", version, why)
			}
			return fail("%s is denied (%s)%s", version, pattern, why)
		}
	}
	return pass("%s is not denied", a.Evaluation.FullVersion)
}
