package config

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// This file converts documents of earlier format versions to the current version, step by step and before they are decoded. Other code
// only knows the current version, so the compiled result keeps its digests.

// formatVersion is a version of the format.
type formatVersion struct {
	name string
	// next converts a document of a kind to the next version in place. Unchanged parts keep their positions. Invalid parts remain for
	// the decoder to reject. It is nil for the last version.
	next func(kind string, document *yaml.Node)
}

// formatVersions lists all versions that were ever released, oldest first. The last is APIVersion.
func formatVersions() []formatVersion { return []formatVersion{{name: APIVersion}} }

// versions returns the versions that this reader supports.
func (l *Reader) versions() []formatVersion {
	if l.others != nil {
		return l.others
	}
	return formatVersions()
}

// unsupportedVersion returns why documents of a version are not supported, or nil.
func (l *Reader) unsupportedVersion(version string) *Fault {
	known := strict.Map(l.versions(), func(v formatVersion) string { return v.name })
	switch {
	case slices.Contains(known, version):
		return nil
	case numberOf(version) > numberOf(known[len(known)-1]):
		return &Fault{
			Code: "newer-version", Message: fmt.Sprintf("%q needs a newer converge", strict.Clip(version)),
			Expected: strict.OneOf(known) + ", or a newer converge",
		}
	}
	return &Fault{Code: "unknown-version", Message: fmt.Sprintf("there is no version %q of this format", strict.Clip(version)), Expected: strict.OneOf(known)}
}

// numberOf returns the 2 of converge/v2; 0: invalid.
func numberOf(version string) (number int) {
	_, _ = fmt.Sscanf(version, "converge/v%d", &number) // an invalid version leaves 0
	return number
}

// convert converts a document of a known version to the current version.
func (l *Reader) convert(kind string, document, version *yaml.Node) {
	all := l.versions()
	from := slices.IndexFunc(all, func(v formatVersion) bool { return v.name == version.Value })
	for n := from; n+1 < len(all); n++ {
		all[n].next(kind, document)
		version.Value = all[n+1].name
	}
}
