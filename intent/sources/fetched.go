package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// lockCommand names the command that locks charts, for messages.
const lockCommand = `an entry written by "converge lock"`

// ChartKey is the key in Objects.Charts of the chart that a file in a directory names.
func ChartKey(dir string, h config.ServiceHelm) string {
	switch {
	case h.Locked():
		return charts.RefOf(h.Chart, h.Repository, h.Version).String()
	case strings.Contains(h.Chart, "://"):
		return h.Chart + "#" + string(h.Digest)
	}
	clean, fault := config.LocalFile(h.Chart)
	if fault != nil {
		return "" // already reported
	}
	return path.Join(dir, clean) + "#" + string(h.Digest)
}

// misnamed returns the problem of a chart reference, and its field.
func misnamed(h *config.ServiceHelm, named config.ServiceHelm) (field string, fault *strict.Fault) {
	switch {
	case h.Digest != "" && h.Chart == "":
		return missing("digest", "a digest needs a chart", `"chart" too`)
	case h.Version != "" && named.Chart == "":
		return missing("version", "a version needs a chart", `"chart" too, here or in kubernetes.helm of the service`)
	case h.Repository != "" && named.Chart == "":
		return missing("repository", "a repository needs a chart", `"chart" too`)
	case named.Locked():
		return misnamedLocked(named)
	case named.Version != "":
		return refused("version", "a chart without a repository has a fixed version", "no version, or the chart by its repository")
	case !strings.Contains(named.Chart, "://"):
		return "", nil
	case !strings.HasPrefix(named.Chart, "https://"):
		return refused("chart", fmt.Sprintf("%q cannot be fetched", strict.Clip(named.Chart)), "an address that begins with https:// or oci://, or a path")
	case named.Digest == "":
		return missing("chart", "a chart from a URL can change", `"digest": sha256: and 64 hexadecimal digits`)
	}
	return "", nil
}

// misnamedLocked is misnamed for a chart of the lock.
func misnamedLocked(named config.ServiceHelm) (field string, fault *strict.Fault) {
	switch {
	case named.Digest != "":
		return refused("digest", "converge.lock has the digest of this chart", "no digest here")
	case named.Repository != "" && strings.Contains(named.Chart, "://"):
		return refused("repository", "the chart is already an address", "the name of the chart in the repository")
	case named.Version == "":
		return missing("chart", "a chart in a repository needs a version", `"version": 1.4.2, or a range such as ^1.4`)
	}
	if wrong, expected := charts.RefOf(named.Chart, named.Repository, named.Version).Check(); wrong != "" {
		return refused("chart", wrong, expected)
	}
	return "", nil
}

func missing(field, message, expected string) (string, *strict.Fault) {
	return field, &strict.Fault{Code: "missing-field", Message: message, Expected: expected}
}

func refused(field, message, expected string) (string, *strict.Fault) {
	return field, &strict.Fault{Code: "bad-value", Message: message, Expected: expected}
}

// chartNamed returns the chart that a layer of a service names; false if it names none, or the reference is invalid.
func (l *objectLoader) chartNamed(s *config.Document[config.Service], at string, h *config.ServiceHelm) (config.ServiceHelm, bool) {
	var named config.ServiceHelm
	names := func(field string) bool { return s.Has(at + "." + field) }
	if !names("chart") && !names("version") && !names("repository") && !names("digest") {
		return named, false
	}
	for _, field := range []string{"chart", "version", "repository", "digest"} {
		if s.Faulty(at + "." + field) {
			return named, false
		}
	}
	var base *config.ServiceHelm
	if k := s.Spec.Kubernetes; k != nil {
		base = k.Helm
	}
	named = h.Over(base)
	field, fault := misnamed(h, named)
	if fault == nil {
		return named, true
	}
	if !names(field) {
		field = "version" // the layer only sets a version
	}
	l.wrong(s, at+"."+field, *fault)
	return named, false
}

// remoteChart fetches a chart that is pinned by a digest in the configuration or in the lock.
func (l *objectLoader) remoteChart(named config.ServiceHelm) *strict.Fault {
	key := ChartKey("", named)
	if fault, done := l.fetched[key]; done {
		return fault
	}
	bring := l.pinned
	if named.Locked() {
		bring = l.locked
	}
	chart, fault := bring(named)
	if l.fetched[key] = fault; fault == nil {
		l.into.Charts[key] = chart
	}
	return fault
}

func (l *objectLoader) client() charts.Client { return charts.Client{HTTP: l.Config.Options.Client} }

// pinned fetches a chart with a digest in the configuration.
func (l *objectLoader) pinned(named config.ServiceHelm) (*Chart, *strict.Fault) {
	data, err := l.client().FetchAddress(context.Background(), named.Chart, string(named.Digest))
	var chart *Chart
	if err == nil {
		chart, err = OpenChart(data)
	}
	if err != nil {
		return nil, &strict.Fault{Code: "chart", Message: fmt.Sprintf("%s cannot be used: %v", path.Base(named.Chart), err)}
	}
	return chart, nil
}

// locked fetches a chart of the lock.
func (l *objectLoader) locked(named config.ServiceHelm) (*Chart, *strict.Fault) {
	ref := charts.RefOf(named.Chart, named.Repository, named.Version)
	lock, err := l.lock()
	if err != nil {
		l.lockTold = true
		return nil, &strict.Fault{Code: "lock", Message: fmt.Sprintf("%s cannot be used: %v", charts.LockFile, err), Expected: lockCommand}
	}
	entry, found := lock.Find(ref)
	if !found {
		return nil, &strict.Fault{Code: "not-locked", Message: fmt.Sprintf("chart %s is not in %s", ref, charts.LockFile), Expected: lockCommand}
	}
	data, err := l.client().Fetch(context.Background(), entry)
	var chart *Chart
	if err == nil {
		chart, err = openAs(data, entry)
	}
	if differs := new(charts.Differs); errors.As(err, &differs) {
		return nil, &strict.Fault{
			Code: "chart", Message: fmt.Sprintf("%s has the digest %s, and in %s it is %s", ref, differs.Has, charts.LockFile, differs.Want),
			Expected: `the locked chart; run "converge lock --update" once you know why it changed`,
		}
	}
	if err != nil {
		return nil, &strict.Fault{Code: "chart", Message: fmt.Sprintf("%s cannot be used: %v", ref, err)}
	}
	return chart, nil
}

// lock reads the lock of the configuration; a missing lock is empty.
func (l *objectLoader) lock() (charts.Lock, error) {
	if l.lockRead {
		return l.lockHas, l.lockErr
	}
	l.lockRead = true
	if _, err := fs.Stat(l.FS, charts.LockFile); errors.Is(err, fs.ErrNotExist) {
		return l.lockHas, nil
	}
	text, fault := l.Read(charts.LockFile, charts.MaxLock)
	if fault != nil {
		l.lockErr = errors.New(fault.Message)
		return l.lockHas, l.lockErr
	}
	l.lockText = text
	l.lockHas, l.lockErr = charts.ParseLock(text)
	return l.lockHas, l.lockErr
}

// openAs opens a packed chart, and verifies that it is the chart of a lock entry.
func openAs(data []byte, e charts.Entry) (*Chart, error) {
	chart, err := OpenChart(data)
	if err != nil {
		return nil, err
	}
	name, version := chart.named()
	have, err := semver.NewVersion(version)
	want, wrong := semver.NewVersion(e.Version)
	if name != e.Ref().Name() || err != nil || wrong != nil || !have.Equal(want) {
		return nil, fmt.Errorf("the name of the chart is %s %s; expected %s", strict.Clip(name), strict.Clip(version), e)
	}
	return chart, nil
}

// named returns the name and version in the chart's metadata.
func (c *Chart) named() (name, version string) {
	var says struct{ Name, Version string }
	for _, f := range c.files {
		if f.Name == "Chart.yaml" {
			_ = yaml.Unmarshal(f.Data, &says) // Helm has already parsed it
		}
	}
	return says.Name, says.Version
}

// fetching is the state of a loader for remote charts.
type fetching struct {
	fetched  map[string]*strict.Fault // requested charts and their problems
	lockRead bool
	lockTold bool // the unusable lock is already reported
	lockText []byte
	lockHas  charts.Lock
	lockErr  error
}
