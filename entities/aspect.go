package entities

import (
	"regexp"
	"slices"
	"strings"
)

// Aspect is a group of parameters whose values have their own releases (B5). The version, and everything else, is an aspect without a name.
type Aspect struct {
	Name       string   `json:"name"`
	Parameters []string `json:"parameters"`
}

// A release of an aspect is named by the aspect and its values, "flags.x3f9a21c0". A full version of an instance consists of the version
// and the releases of its values: "v7-flags.x3f9a21c0".
var (
	aspectRE = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)
	valuesRE = regexp.MustCompile(`^[a-z][a-z0-9]*\.x[0-9a-f]{8}$`)
	mergedRE = regexp.MustCompile(`(-[a-z][a-z0-9]*\.x[0-9a-f]{8})+$`)
)

const valuesDigits = 8

// VersionAspect is a reserved name: the aspect without a name.
const VersionAspect = "version"

// IsAspectName reports whether a name is valid for an aspect. In a full version the name is between a hyphen and a dot.
func IsAspectName(name string) bool { return aspectRE.MatchString(name) && name != VersionAspect }

// ValuesName returns the name of a release of an aspect. The same values have the same name.
func ValuesName(aspect string, values map[string]any, perChannel map[string]map[string]any) string {
	return aspect + ".x" + DigestOf(aspect, values, perChannel)[:valuesDigits]
}

// IsValuesName reports whether a version is the name of a release of an aspect.
func IsValuesName(version string) bool { return valuesRE.MatchString(version) }

// AspectOf returns the aspect of a release with that name.
func AspectOf(values string) string {
	aspect, _, _ := strings.Cut(values, ".")
	return aspect
}

// SplitVersion splits a full version into the version and the releases of aspects whose values are merged into it, by name.
func SplitVersion(full string) (version string, values []string) {
	version = mergedRE.ReplaceAllString(full, "")
	if version == full {
		return full, nil
	}
	return version, strings.Split(full[len(version)+1:], "-")
}

// JoinVersion returns the full version of a version and the values of releases of aspects, at most one per aspect.
func JoinVersion(version string, values []string) string {
	values = slices.Clone(values)
	slices.Sort(values)
	return strings.Join(append([]string{version}, values...), "-")
}

// Aspect returns the aspect with a name, or nil.
func (s *Spec) Aspect(name string) *Aspect {
	if s == nil {
		return nil
	}
	for n := range s.Aspects {
		if s.Aspects[n].Name == name {
			return &s.Aspects[n]
		}
	}
	return nil
}

// AspectNames returns the aspects of the service, in order.
func (s *Spec) AspectNames() []string {
	var out []string
	for _, a := range s.Aspects {
		out = append(out, a.Name)
	}
	return out
}

// aspectSetting returns the aspect of a parameter; "": the version's.
func (s *Spec) aspectSetting(parameter string) string {
	for _, a := range s.Aspects {
		if slices.Contains(a.Parameters, parameter) {
			return a.Name
		}
	}
	return ""
}
