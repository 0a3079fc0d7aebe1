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
const lockCommand = `an entry written by "converge config lock"`

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

// chartFault returns the problem of a chart reference, and its field.
func chartFault(h *config.ServiceHelm, named config.ServiceHelm) (field string, fault *strict.Fault) {
	switch {
	case h.Digest != "" && h.Chart == "":
		return missingField("digest", "a digest needs a chart", `"chart" too`)
	case h.Version != "" && named.Chart == "":
		return missingField("version", "a version needs a chart", `"chart" too, here or in kubernetes.helm of the service`)
	case h.Repository != "" && named.Chart == "":
		return missingField("repository", "a repository needs a chart", `"chart" too`)
	case named.Locked():
		return lockedChartFault(named)
	case named.Version != "":
		return badField("version", "a chart without a repository has a fixed version", "no version, or the chart by its repository")
	case !strings.Contains(named.Chart, "://"):
		return "", nil
	case !strings.HasPrefix(named.Chart, "https://"):
		return badField("chart", fmt.Sprintf("%q cannot be fetched", strict.Clip(named.Chart)), "an address that begins with https:// or oci://, or a path")
	case named.Digest == "":
		return missingField("chart", "a chart from a URL can change", `"digest": sha256: and 64 hexadecimal digits`)
	}
	return "", nil
}

// lockedChartFault is chartFault for a chart of the lock.
func lockedChartFault(named config.ServiceHelm) (field string, fault *strict.Fault) {
	switch {
	case named.Digest != "":
		return badField("digest", "converge.lock has the digest of this chart", "no digest here")
	case named.Repository != "" && strings.Contains(named.Chart, "://"):
		return badField("repository", "the chart is already an address", "the name of the chart in the repository")
	case named.Version == "":
		return missingField("chart", "a chart in a repository needs a version", `"version": 1.4.2, or a range such as ^1.4`)
	}
	if wrong, expected := charts.RefOf(named.Chart, named.Repository, named.Version).Check(); wrong != "" {
		return badField("chart", wrong, expected)
	}
	return "", nil
}

func missingField(field, message, expected string) (string, *strict.Fault) {
	return field, &strict.Fault{Code: "missing-field", Message: message, Expected: expected}
}

func badField(field, message, expected string) (string, *strict.Fault) {
	return field, &strict.Fault{Code: "bad-value", Message: message, Expected: expected}
}

// mergedChart returns the chart that a layer of a service names; false if it names none, or the reference is invalid.
func (l *objectLoader) mergedChart(s *config.Document[config.Service], at string, h *config.ServiceHelm) (config.ServiceHelm, bool) {
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
	named = h.InheritFrom(base)
	field, fault := chartFault(h, named)
	if fault == nil {
		return named, true
	}
	if !names(field) {
		field = "version" // the layer only sets a version
	}
	l.reportFault(s, at+"."+field, *fault)
	return named, false
}

// remoteChart fetches a chart that is pinned by a digest in the configuration or in the lock.
func (l *objectLoader) remoteChart(named config.ServiceHelm) *strict.Fault {
	key := ChartKey("", named)
	if fault, done := l.fetched[key]; done {
		return fault
	}
	load := l.fetchPinned
	if named.Locked() {
		load = l.fetchLocked
	}
	chart, fault := load(named)
	if l.fetched[key] = fault; fault == nil {
		l.into.Charts[key] = chart
	}
	return fault
}

func (l *objectLoader) client() charts.Client { return charts.Client{HTTP: l.Config.Options.Client} }

// fetchPinned fetches a chart with a digest in the configuration.
func (l *objectLoader) fetchPinned(named config.ServiceHelm) (*Chart, *strict.Fault) {
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

// fetchLocked fetches a chart of the lock.
func (l *objectLoader) fetchLocked(named config.ServiceHelm) (*Chart, *strict.Fault) {
	ref := charts.RefOf(named.Chart, named.Repository, named.Version)
	lock, err := l.readLock()
	if err != nil {
		l.lockReported = true
		return nil, &strict.Fault{Code: "lock", Message: fmt.Sprintf("%s cannot be used: %v", charts.LockFile, err), Expected: lockCommand}
	}
	entry, found := lock.Find(ref)
	if !found {
		return nil, &strict.Fault{Code: "not-locked", Message: fmt.Sprintf("chart %s is not in %s", ref, charts.LockFile), Expected: lockCommand}
	}
	data, err := l.client().Fetch(context.Background(), entry)
	var chart *Chart
	if err == nil {
		chart, err = openEntry(data, entry)
	}
	if differs := new(charts.DigestError); errors.As(err, &differs) {
		return nil, &strict.Fault{
			Code: "chart", Message: fmt.Sprintf("%s has the digest %s, and in %s it is %s", ref, differs.Got, charts.LockFile, differs.Want),
			Expected: `the locked chart; run "converge config lock --update" once you know why it changed`,
		}
	}
	if err != nil {
		return nil, &strict.Fault{Code: "chart", Message: fmt.Sprintf("%s cannot be used: %v", ref, err)}
	}
	return chart, nil
}

// readLock reads the lock of the configuration; a missing lock is empty.
func (l *objectLoader) readLock() (charts.Lock, error) {
	if l.lockRead {
		return l.lockContent, l.lockErr
	}
	l.lockRead = true
	if _, err := fs.Stat(l.FS, charts.LockFile); errors.Is(err, fs.ErrNotExist) {
		return l.lockContent, nil
	}
	text, fault := l.Read(charts.LockFile, charts.MaxLock)
	if fault != nil {
		l.lockErr = errors.New(fault.Message)
		return l.lockContent, l.lockErr
	}
	l.lockText = text
	l.lockContent, l.lockErr = charts.ParseLock(text)
	return l.lockContent, l.lockErr
}

// openEntry opens a packed chart, and verifies that it is the chart of a lock entry.
func openEntry(data []byte, e charts.Entry) (*Chart, error) {
	chart, err := OpenChart(data)
	if err != nil {
		return nil, err
	}
	name, version := chart.nameAndVersion()
	got, err := semver.NewVersion(version)
	want, wantErr := semver.NewVersion(e.Version)
	if name != e.Ref().Name() || err != nil || wantErr != nil || !got.Equal(want) {
		return nil, fmt.Errorf("the name of the chart is %s %s; expected %s", strict.Clip(name), strict.Clip(version), e)
	}
	return chart, nil
}

// nameAndVersion returns the name and version in the chart's metadata.
func (c *Chart) nameAndVersion() (name, version string) {
	var metadata struct{ Name, Version string }
	for _, f := range c.files {
		if f.Name == "Chart.yaml" {
			_ = yaml.Unmarshal(f.Data, &metadata) // Helm has already parsed it
		}
	}
	return metadata.Name, metadata.Version
}

// chartFetches is the state of a loader for remote charts.
type chartFetches struct {
	fetched      map[string]*strict.Fault // requested charts and their problems
	lockRead     bool
	lockReported bool // the unusable lock is already reported
	lockText     []byte
	lockContent  charts.Lock
	lockErr      error
}
