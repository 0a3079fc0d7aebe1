// Package charts locks and fetches Helm charts from repositories and OCI registries. converge.lock contains the digest of each chart.
// The package resolves versions when it writes the lock, and fetches locked charts for the compiler.
//
// It never uses bytes with another digest than the lock, resolves versions only on request, and sends credentials only to their host. It
// does not inspect the content of charts. It imports no other package of this module.
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

// Ref is a reference to a chart in a configuration.
type Ref struct {
	// Chart is the chart's name in the repository, or its address in a registry: oci://HOST/PATH.
	Chart string
	// Repository is the URL of a repository with an index.yaml; empty for a registry.
	Repository string
	// Wanted is a version or a version range.
	Wanted string
}

const ociPrefix = "oci://"

// RefOf returns the reference to a chart in a repository, which may be a registry, too.
func RefOf(chart, repository, constraint string) Ref {
	repository = strings.TrimRight(repository, "/")
	if IsOCI(repository) {
		return Ref{Chart: repository + "/" + chart, Wanted: constraint}
	}
	return Ref{Chart: strings.TrimRight(chart, "/"), Repository: repository, Wanted: constraint}
}

// IsOCI reports whether an address belongs to a registry.
func IsOCI(address string) bool { return strings.HasPrefix(address, ociPrefix) }

// Name returns the required name of the chart.
func (r Ref) Name() string { return path.Base(r.Chart) }

// String is chart 1.4.2 of REPOSITORY.
func (r Ref) String() string {
	if r.Repository == "" {
		return r.Chart + " " + r.Wanted
	}
	return fmt.Sprintf("%s %s of %s", r.Chart, r.Wanted, r.Repository)
}

// Check returns the problem of a reference, and the expected value.
func (r Ref) Check() (problem, expected string) {
	address := r.Repository
	if address == "" {
		address = r.Chart
	}
	if problem := checkAddress(address); problem != "" {
		return problem, "https://HOST/PATH or oci://HOST/PATH without a password, a query or a version in it"
	}
	if r.Repository != "" && (r.Chart == "" || strings.ContainsAny(r.Chart, "/\\:?#%@ ") || strings.HasPrefix(r.Chart, ".")) {
		return fmt.Sprintf("invalid chart name %q for a repository", r.Chart), "a name in the index of the repository"
	}
	if _, err := semver.NewConstraint(r.Wanted); err != nil {
		return fmt.Sprintf("invalid chart version %q", r.Wanted), "a version such as 1.4.2, or a range such as ^1.4 or >=2.0.0 <3"
	}
	return "", ""
}

func checkAddress(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return "it is not an address"
	case u.User != nil:
		return "the address contains a password or token that everybody could read; use docker login, helm registry login or netrc"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "the address has a query or a fragment"
	case u.Scheme == "oci":
		if _, err := parseRepository(address); err != nil {
			return "it is not an address in a registry: " + err.Error()
		}
		return ""
	case u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname()):
		return ""
	}
	return fmt.Sprintf("%s:// is not supported", u.Scheme)
}

// Loopback reports whether a hostname means this machine.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Digest returns the digest of bytes: sha256: and hexadecimal digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newestMatching returns the highest version that matches, in the repository's spelling; empty: none.
func newestMatching(versions []string, wantedRange string) string {
	constraint, err := semver.NewConstraint(wantedRange)
	if err != nil {
		return ""
	}
	var best *semver.Version
	found := ""
	for _, text := range versions {
		v, err := semver.NewVersion(text)
		switch {
		case text == wantedRange:
			return text
		case err != nil || !constraint.Check(v):
		case best == nil || v.GreaterThan(best) || v.Equal(best) && text < found: // the result does not depend on the order
			best, found = v, text
		}
	}
	return found
}
