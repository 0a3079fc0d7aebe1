package checks

import (
	"context"
	"path"

	"github.com/converge-engine/converge/entities"
)

// deniedVersions fails versions that match a glob. It matches the named version, the full version, and the parts of the full version: the
// version that values were added to, and the values (A20).
type deniedVersions struct{}

func (deniedVersions) Evaluate(_ context.Context, a Request) (entities.CheckReading, error) {
	d := a.Definition.DeniedVersions
	if d == nil {
		return incomplete(a)
	}
	for _, pattern := range d.Versions { // validates all patterns first, so that an invalid one is found before the first match
		if _, err := path.Match(pattern, ""); err != nil {
			return unevaluated("invalid pattern %q for versions: %w", pattern, err)
		}
	}
	base, values := entities.SplitVersion(a.Evaluation.FullVersion)
	for _, pattern := range d.Versions {
		for _, version := range append([]string{a.version(), a.Evaluation.FullVersion, base}, values...) {
			if matches, _ := path.Match(pattern, version); !matches { // the patterns are valid: see above
				continue
			}
			reason := entities.Because(d.Reason)
			if pattern == version {
				return fail("%s is denied%s", version, reason)
			}
			return fail("%s is denied (%s)%s", version, pattern, reason)
		}
	}
	return pass("%s is not denied", a.Evaluation.FullVersion)
}
