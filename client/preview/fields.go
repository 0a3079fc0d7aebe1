package preview

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/converge-engine/converge/entities/protocol"
)

// VersionField ends the path of the annotation that every object of a version carries.
const VersionField = "[converge/version]"

// templateField ends the path of the annotation that replaces pods. The output explains the replacement elsewhere: next to the object,
// or in a message.
const templateField = "[converge/template]"

// FoldVersion removes the annotations that merely carry the version, unless nothing else changes: then one line says so. It also
// removes the annotations that replace pods.
func FoldVersion(all []protocol.PreviewField) []protocol.PreviewField {
	var version, rest []protocol.PreviewField
	for _, f := range all {
		switch {
		case strings.HasSuffix(f.Path, VersionField):
			version = append(version, f)
		case !strings.HasSuffix(f.Path, templateField):
			rest = append(rest, f)
		}
	}
	if len(rest) == 0 && len(version) > 0 {
		return []protocol.PreviewField{{Path: "version", Old: version[0].Old, New: version[0].New}}
	}
	return rest
}

// ambiguousFields lists field names that mean little without their parent.
var ambiguousFields = [...]string{"value", "name", "key", "number", "port", "order", "type"}

// ShortPaths shortens the paths of one object's fields to their ends, as far as they stay distinct:
// spec.template.spec.containers[name=web].image is image.
func ShortPaths(all []protocol.PreviewField) []string {
	parts := make([][]string, len(all))
	keep := make([]int, len(all))
	out := make([]string, len(all))
	for n, f := range all {
		parts[n], keep[n] = segments(f.Path), 1
		last := parts[n][len(parts[n])-1]
		if slices.Contains(ambiguousFields[:], last) || strings.HasPrefix(last, "[") {
			keep[n] = min(2, len(parts[n]))
		}
	}
	for {
		seen := map[string]int{}
		for n := range all {
			out[n] = strings.Join(parts[n][len(parts[n])-keep[n]:], ".")
			seen[out[n]]++
		}
		longer := false
		for n := range all {
			if seen[out[n]] > 1 && keep[n] < len(parts[n]) {
				keep[n]++
				longer = true
			}
		}
		if !longer {
			return out
		}
	}
}

// segments splits a path at its dots. Text in brackets stays with its name.
func segments(path string) []string {
	var out []string
	depth, from := 0, 0
	for n, r := range path {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == '.' && depth == 0:
			out = append(out, path[from:n])
			from = n + 1
		}
	}
	return append(out, path[from:])
}

// DisplayValue removes the quotes of JSON text if it is one visible word. Control characters stay escaped, so that no value can control a
// terminal.
func DisplayValue(value string) string {
	if value == "" {
		return "(none)"
	}
	var text string
	if json.Unmarshal([]byte(value), &text) != nil {
		return OneLine(value)
	}
	simple := text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' || r == ';' || r == '→'
	})
	if !simple {
		return OneLine(value)
	}
	return text
}

// OneLine turns external text into one line without terminal control characters.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
}
