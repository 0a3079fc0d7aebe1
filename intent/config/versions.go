package config

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// This file reads documents of other versions of the format. One of an earlier version is made one of the next, and so on to the
// present one, before it is decoded: nothing behind this knows of any other, so that what it compiles to has the digests that it had.

// formatVersion is a version of the format.
type formatVersion struct {
	name string
	// next makes a document of a kind one of the version after this, in place; what stays keeps its position, and what is wrong is left
	// for the decoder to refuse. Of the last one it is nil.
	next func(kind string, document *yaml.Node)
}

// formatVersions are all that were ever released, oldest first. The last is APIVersion.
func formatVersions() []formatVersion { return []formatVersion{{name: APIVersion}} }

// versions are those that this reader knows.
func (l *Reader) versions() []formatVersion {
	if l.others != nil {
		return l.others
	}
	return formatVersions()
}

// unread says why no document of a version is read, or nil.
func (l *Reader) unread(version string) *Fault {
	known := strict.Map(l.versions(), func(v formatVersion) string { return v.name })
	switch {
	case slices.Contains(known, version):
		return nil
	case numberOf(version) > numberOf(known[len(known)-1]):
		return &Fault{
			Code: "newer-version", Message: fmt.Sprintf("%q is written for a newer converge than this one", strict.Clip(version)),
			Expected: strict.OneOf(known) + ", or converge upgraded",
		}
	}
	return &Fault{Code: "unknown-version", Message: fmt.Sprintf("there is no version %q of this format", strict.Clip(version)), Expected: strict.OneOf(known)}
}

// numberOf is the 2 of converge/v2; 0: there is none.
func numberOf(version string) (number int) {
	_, _ = fmt.Sscanf(version, "converge/v%d", &number) // what does not fit stays 0
	return number
}

// convert makes a document one of the present version. Its version is known.
func (l *Reader) convert(kind string, document, version *yaml.Node) {
	all := l.versions()
	from := slices.IndexFunc(all, func(v formatVersion) bool { return v.name == version.Value })
	for n := from; n+1 < len(all); n++ {
		all[n].next(kind, document)
		version.Value = all[n+1].name
	}
}
