package charts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// LockFile is the name of the lock in the directory of the configuration.
const LockFile = "converge.lock"

// MaxLock bounds the size of the lock in bytes.
const MaxLock = 1 << 20

// lockVersion is the version of the format.
const lockVersion = "converge/v1"

// Lock pins the bytes of the charts that a configuration refers to.
type Lock struct {
	LockVersion string  `yaml:"lockVersion"`
	Charts      []Entry `yaml:"charts"`
	// Capabilities are the captured capabilities of the runtimes' clusters.
	Capabilities []Capabilities `yaml:"capabilities,omitempty"`
}

// Entry is one chart of a lock.
type Entry struct {
	Chart      string `yaml:"chart"`
	Repository string `yaml:"repository,omitempty"`
	Wanted     string `yaml:"wanted"`
	Version    string `yaml:"version"`
	// URL is the download URL from the repository's index; empty for a registry, where the digest identifies the content.
	URL    string `yaml:"url,omitempty"`
	Digest string `yaml:"digest"`
}

// Ref returns the reference that the entry locks.
func (e Entry) Ref() Ref { return Ref{e.Chart, e.Repository, e.Wanted} }

// String is chart 1.4.2, without its origin.
func (e Entry) String() string { return e.Ref().Name() + " " + e.Version }

var digestRE = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ParseLock parses a lock strictly.
func ParseLock(data []byte) (Lock, error) {
	var lock Lock
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&lock); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return lock, err
	}
	if lock.LockVersion != lockVersion {
		return lock, fmt.Errorf("its lockVersion is %q; this Converge supports %s", lock.LockVersion, lockVersion)
	}
	for i, e := range lock.Charts {
		wrong, _ := e.Ref().Check()
		switch {
		case wrong != "":
		case !digestRE.MatchString(e.Digest):
			wrong = fmt.Sprintf("invalid digest %q", e.Digest)
		case e.Version == "":
			wrong = "it has no version"
		case (e.URL == "") != (e.Repository == ""):
			wrong = "its url is missing, or belongs to a registry"
		case slices.ContainsFunc(lock.Charts[:i], func(o Entry) bool { return o.Ref() == e.Ref() }):
			wrong = "it is listed twice"
		}
		if wrong != "" {
			return lock, fmt.Errorf("%s: %s", e.Ref(), wrong)
		}
	}
	return lock, checkCapabilities(lock.Capabilities)
}

// Find returns the entry of a chart.
func (l Lock) Find(r Ref) (Entry, bool) {
	at := slices.IndexFunc(l.Charts, func(e Entry) bool { return e.Ref() == r })
	if at < 0 {
		return Entry{}, false
	}
	return l.Charts[at], true
}

const lockHead = `# Written by "converge config lock": the version and the digest of each chart that is named here. Commit it.
`

// Bytes returns the content of the file, which is the same for equal locks.
func (l Lock) Bytes() []byte {
	l.LockVersion = lockVersion
	l.Charts = slices.Clone(l.Charts)
	slices.SortFunc(l.Charts, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Chart, b.Chart), cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Wanted, b.Wanted))
	})
	l.Capabilities = sortedCapabilities(l.Capabilities)
	var text bytes.Buffer
	text.WriteString(lockHead)
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	_ = encoder.Encode(l) // strings only
	_ = encoder.Close()
	return text.Bytes()
}
