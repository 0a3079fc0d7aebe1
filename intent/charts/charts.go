// Package charts has Helm charts that are named by repository and version, or in an OCI registry: converge.lock, which says the
// digest of each, how a version is found when that is written, and how a chart of the lock is fetched when compiling.
//
// It never uses bytes that have another digest than the lock, resolves no version unless that is asked for, and gives
// credentials to nobody but the host that they are for. What a chart contains it does not look at. It imports nothing else of ours.
package charts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// MaxChart bounds the bytes of a packed chart.
const MaxChart = 32 << 20

// Ref is a chart as a configuration names it.
type Ref struct {
	// Chart is its name in the repository, or its address in a registry: oci://HOST/PATH.
	Chart string
	// Repository is the address of a repository with an index.yaml; empty for a registry.
	Repository string
	// Wanted is a version, or a range of versions.
	Wanted string
}

const ociPrefix = "oci://"

// RefOf is a chart as it is written: in a repository, which may be a registry, too.
func RefOf(chart, repository, wanted string) Ref {
	repository = strings.TrimRight(repository, "/")
	if IsOCI(repository) {
		return Ref{Chart: repository + "/" + chart, Wanted: wanted}
	}
	return Ref{Chart: strings.TrimRight(chart, "/"), Repository: repository, Wanted: wanted}
}

// IsOCI reports whether an address is that of a registry.
func IsOCI(address string) bool { return strings.HasPrefix(address, ociPrefix) }

// Name is what the chart has to call itself.
func (r Ref) Name() string { return path.Base(r.Chart) }

// String is chart 1.4.2 of REPOSITORY.
func (r Ref) String() string {
	if r.Repository == "" {
		return r.Chart + " " + r.Wanted
	}
	return fmt.Sprintf("%s %s of %s", r.Chart, r.Wanted, r.Repository)
}

// Check says what is wrong with a reference, and what would be right.
func (r Ref) Check() (wrong, expected string) {
	address := r.Repository
	if address == "" {
		address = r.Chart
	}
	if wrong := checkAddress(address); wrong != "" {
		return wrong, "https://HOST/PATH or oci://HOST/PATH without a password, a query or a version in it"
	}
	if r.Repository != "" && (r.Chart == "" || strings.ContainsAny(r.Chart, "/\\:?#%@ ") || strings.HasPrefix(r.Chart, ".")) {
		return fmt.Sprintf("%q is no name of a chart in a repository", r.Chart), "the name that its index lists"
	}
	if _, err := semver.NewConstraint(r.Wanted); err != nil {
		return fmt.Sprintf("%q is no version of a chart", r.Wanted), "a version such as 1.4.2, or a range such as ^1.4 or >=2.0.0 <3"
	}
	return "", ""
}

func checkAddress(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return "it is no address"
	case u.User != nil:
		return "a password or token in the address would be seen by everybody; docker login, helm registry login and netrc keep them"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "the address has a query or a fragment"
	case u.Scheme == "oci":
		if _, err := openable(address); err != nil {
			return "it is no address in a registry: " + err.Error()
		}
		return ""
	case u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname()):
		return ""
	}
	return fmt.Sprintf("%s:// is not fetched from", u.Scheme)
}

// Loopback reports whether a host is this machine by its name.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Digest names bytes: sha256: and hexadecimal digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newest is the highest of some versions that is wanted, as the repository spells it; empty: none is.
func newest(versions []string, wanted string) string {
	constraint, err := semver.NewConstraint(wanted)
	if err != nil {
		return ""
	}
	var best *semver.Version
	found := ""
	for _, text := range versions {
		v, err := semver.NewVersion(text)
		switch {
		case text == wanted:
			return text
		case err != nil || !constraint.Check(v):
		case best == nil || v.GreaterThan(best) || v.Equal(best) && text < found: // the same answer whatever their order
			best, found = v, text
		}
	}
	return found
}
