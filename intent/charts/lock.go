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

// LockFile is the name of the lock, beside the configuration.
const LockFile = "converge.lock"

// MaxLock bounds its bytes.
const MaxLock = 1 << 20

// lockVersion is that of the format.
const lockVersion = "converge/v1"

// Lock says which bytes the charts are that a configuration names.
type Lock struct {
	LockVersion string  `yaml:"lockVersion"`
	Charts      []Entry `yaml:"charts"`
	// Capabilities are what the clusters of runtimes were when they were asked.
	Capabilities []Capabilities `yaml:"capabilities,omitempty"`
}

// Entry is one chart of a lock.
type Entry struct {
	Chart      string `yaml:"chart"`
	Repository string `yaml:"repository,omitempty"`
	Wanted     string `yaml:"wanted"`
	Version    string `yaml:"version"`
	// URL is where the repository says that it is; empty in a registry, where the digest says it.
	URL    string `yaml:"url,omitempty"`
	Digest string `yaml:"digest"`
}

// Ref is what the entry is for.
func (e Entry) Ref() Ref { return Ref{e.Chart, e.Repository, e.Wanted} }

// String is chart 1.4.2, without where it is from.
func (e Entry) String() string { return e.Ref().Name() + " " + e.Version }

var digestRE = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ParseLock reads a lock strictly.
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
		return lock, fmt.Errorf("its lockVersion is %q; this Converge knows %s", lock.LockVersion, lockVersion)
	}
	for i, e := range lock.Charts {
		wrong, _ := e.Ref().Check()
		switch {
		case wrong != "":
		case !digestRE.MatchString(e.Digest):
			wrong = fmt.Sprintf("%q is no digest", e.Digest)
		case e.Version == "":
			wrong = "it has no version"
		case (e.URL == "") != (e.Repository == ""):
			wrong = "its url is missing, or belongs to a registry"
		case slices.ContainsFunc(lock.Charts[:i], func(o Entry) bool { return o.Ref() == e.Ref() }):
			wrong = "it is there twice"
		}
		if wrong != "" {
			return lock, fmt.Errorf("%s: %s", e.Ref(), wrong)
		}
	}
	return lock, checkCapabilities(lock.Capabilities)
}

// Find is the entry of a chart.
func (l Lock) Find(r Ref) (Entry, bool) {
	at := slices.IndexFunc(l.Charts, func(e Entry) bool { return e.Ref() == r })
	if at < 0 {
		return Entry{}, false
	}
	return l.Charts[at], true
}

const lockHead = `# Written by "converge lock": the version and the digest of each chart that is named here. Commit it.
`

// Bytes are those of the file: the same for the same lock.
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
	_ = encoder.Encode(l) // texts alone
	_ = encoder.Close()
	return text.Bytes()
}
