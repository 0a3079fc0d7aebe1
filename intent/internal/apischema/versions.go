package apischema

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Use is a kind or a field that not every version of Kubernetes has.
type Use struct {
	Path string
	lifetime
	what        string // the field "workloadRef"
	replacement string
	suggestion  string
}

// CodeVersion marks a kind or a field that the cluster does not have, but another version of Kubernetes has.
const CodeVersion = "api-version"

// Minor returns the minor version of a version of Kubernetes: 34 of v1.34.2; 0 if there is none.
func Minor(version string) int {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 || parts[0] != "1" {
		return 0
	}
	digits := strings.IndexFunc(parts[1]+" ", func(c rune) bool { return c < '0' || c > '9' })
	minor, _ := strconv.Atoi(parts[1][:digits]) // none is unknown
	return minor
}

// Fault returns the problem of a use in a cluster of a minor version. Minor 0 is an unknown version: then a use that no supported version
// has is a problem, and one that only some of them have is a warning.
func (u Use) Fault(minor int) (fault *strict.Fault, isWarning bool) {
	b := schema()
	if minor == 0 {
		switch {
		case u.first > b.newest || u.last != 0 && u.last < b.oldest:
			return u.fault(""), false
		case u.first > b.oldest || u.last != 0 && u.last < b.newest:
			return u.fault(""), true
		}
		return nil, false
	}
	if u.first > minor || u.last != 0 && u.last < minor {
		return u.fault(fmt.Sprintf(", and this cluster has 1.%d", minor)), false
	}
	return nil, false
}

// fault describes the versions that have the kind or the field.
func (u Use) fault(cluster string) *strict.Fault {
	b, f := schema(), &strict.Fault{Code: CodeVersion, Expected: u.replacement, Suggestion: u.suggestion}
	switch {
	case u.last != 0 && u.last < b.oldest: // in every supported version
		f.Code, cluster = "removed-api", ""
		f.Message = fmt.Sprintf("Kubernetes 1.%d and later do not have %s", u.last+1, u.what)
	case u.first > b.newest:
		f.Code, cluster = "unknown-field", ""
		f.Message = fmt.Sprintf("no version of Kubernetes up to 1.%d has %s", b.newest, u.what)
	case u.first != 0 && u.first == u.last:
		f.Message = fmt.Sprintf("only Kubernetes 1.%d has %s", u.first, u.what)
	case u.first != 0 && u.last != 0:
		f.Message = fmt.Sprintf("only Kubernetes 1.%d to 1.%d have %s", u.first, u.last, u.what)
	case u.first != 0:
		f.Message = fmt.Sprintf("only Kubernetes 1.%d and later have %s", u.first, u.what)
	default:
		f.Message = fmt.Sprintf("Kubernetes 1.%d and later do not have %s", u.last+1, u.what)
	}
	f.Message += cluster
	return f
}
