package entities

import (
	"regexp"
	"slices"
	"strings"
)

// Aspect is a group of parameters whose values go out by releases of their own (B5). The version, and all else, is an aspect without
// a name.
type Aspect struct {
	Name       string   `json:"name"`
	Parameters []string `json:"parameters"`
}

// A release of an aspect is named by the aspect and its values, "flags.x3f9a21c0", and what an instance is at by its version and the
// releases that its values are of: "v7-flags.x3f9a21c0".
var (
	aspectRE = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)
	valuesRE = regexp.MustCompile(`^[a-z][a-z0-9]*\.x[0-9a-f]{8}$`)
	mergedRE = regexp.MustCompile(`(-[a-z][a-z0-9]*\.x[0-9a-f]{8})+$`)
)

const valuesDigits = 8

// VersionAspect is what people may not call an aspect: the one without a name.
const VersionAspect = "version"

// IsAspectName tells whether an aspect can be called so. It stands between the hyphens and the dot of a full version.
func IsAspectName(name string) bool { return aspectRE.MatchString(name) && name != VersionAspect }

// ValuesName is what a release of an aspect is called: the same for the same values.
func ValuesName(aspect string, values map[string]any, perChannel map[string]map[string]any) string {
	return aspect + ".x" + DigestOf(aspect, values, perChannel)[:valuesDigits]
}

// NamesValues tells whether a version is the name of a release of an aspect.
func NamesValues(version string) bool { return valuesRE.MatchString(version) }

// AspectOf is the aspect that a release of that name is of.
func AspectOf(values string) string {
	aspect, _, _ := strings.Cut(values, ".")
	return aspect
}

// SplitVersion takes a full version apart: the version, and the releases of aspects whose values are merged into it, by name.
func SplitVersion(full string) (version string, values []string) {
	version = mergedRE.ReplaceAllString(full, "")
	if version == full {
		return full, nil
	}
	return version, strings.Split(full[len(version)+1:], "-")
}

// JoinVersion is the full version of a version with the values of releases of aspects, one of each.
func JoinVersion(version string, values []string) string {
	values = slices.Clone(values)
	slices.Sort(values)
	return strings.Join(append([]string{version}, values...), "-")
}

// Aspect of that name, or nil.
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

// AspectNames of the service, in order.
func (s *Spec) AspectNames() []string {
	var out []string
	for _, a := range s.Aspects {
		out = append(out, a.Name)
	}
	return out
}

// aspectSetting is the aspect that a parameter belongs to; "": the version's.
func (s *Spec) aspectSetting(parameter string) string {
	for _, a := range s.Aspects {
		if slices.Contains(a.Parameters, parameter) {
			return a.Name
		}
	}
	return ""
}
