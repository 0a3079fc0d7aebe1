package sources

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// LockUpdate is the new lock of a configuration.
type LockUpdate struct {
	Lock     charts.Lock
	Previous []byte   // content of the previous file; nil: there was none
	Changes  []string // one line each
}

// MakeLock makes the lock for all charts of the services. It keeps existing entries, unless refresh is set, and drops entries that are no
// longer used. Only this function resolves versions. Errors are reported at the reference to the chart.
func MakeLock(ctx context.Context, from *config.Reader, refresh bool) (LockUpdate, error) {
	m := &lockMaker{objectLoader: newLoader(from), done: map[charts.Ref]bool{}, refresh: refresh}
	old, err := m.readLock()
	if err != nil {
		return m.update, fmt.Errorf("%s cannot be read: %w; delete it to lock all charts again", charts.LockFile, err)
	}
	m.update.Previous = m.lockText
	for _, wanted := range m.wantedCharts() {
		m.add(ctx, wanted, old)
	}
	m.keepCapabilities(old.Capabilities)
	for _, entry := range old.Charts {
		if !m.done[entry.Ref()] {
			m.update.Changes = append(m.update.Changes, fmt.Sprintf("%s: no longer used", entry.Ref()))
		}
	}
	return m.update, nil
}

// keepCapabilities keeps the captured capabilities of runtimes that the configuration still refers to.
func (m *lockMaker) keepCapabilities(all []charts.Capabilities) {
	for _, c := range all {
		if namesRuntime(m.Config, c.Runtime) {
			m.update.Lock.Capabilities = append(m.update.Lock.Capabilities, c)
		} else {
			m.update.Changes = append(m.update.Changes, fmt.Sprintf("capabilities of %s: no longer used", c.Runtime))
		}
	}
}

// namesRuntime reports whether a configuration declares a runtime, or may use it.
func namesRuntime(c *config.Config, name string) bool {
	for _, r := range c.Runtimes {
		if string(r.Spec.Name) == name {
			return true
		}
	}
	if c.Application == nil {
		return false
	}
	for _, channel := range c.Application.Spec.ReleaseChannels {
		for _, ref := range channel.Runtimes {
			if string(ref.Name) == name || len(ref.Selector) > 0 {
				return true
			}
		}
	}
	return false
}

// CaptureCapabilities writes the capabilities of clusters into the lock of a configuration, and does not change its charts. It keeps
// existing capabilities, unless refresh is set. It calls fetch for the others, which returns all of them or an error.
func CaptureCapabilities(from *config.Reader, runtimes []string, refresh bool, fetch func(runtimes []string) ([]charts.Capabilities, error)) (LockUpdate, error) {
	m := &lockMaker{objectLoader: newLoader(from)}
	old, err := m.readLock()
	if err != nil {
		return m.update, fmt.Errorf("%s cannot be used: %w; delete it to lock everything again", charts.LockFile, err)
	}
	m.update.Previous, m.update.Lock.Charts = m.lockText, old.Charts
	m.keepCapabilities(old.Capabilities)
	runtimes = slices.DeleteFunc(slices.Clone(runtimes), func(name string) bool {
		_, captured := old.CapabilitiesOf(name)
		return captured && !refresh
	})
	if len(runtimes) == 0 {
		return m.update, nil
	}
	captured, err := fetch(runtimes)
	if err != nil {
		return m.update, err
	}
	for _, c := range captured {
		if err := c.Check(); err != nil {
			return m.update, fmt.Errorf("the capabilities of the cluster cannot be locked: %w", err)
		}
		previous, existed := old.CapabilitiesOf(c.Runtime)
		m.update.Lock.Capabilities = append(slices.DeleteFunc(m.update.Lock.Capabilities, func(o charts.Capabilities) bool { return o.Runtime == c.Runtime }), c)
		change := fmt.Sprintf("%s, %d APIs", c.KubeVersion, len(c.APIVersions()))
		if existed {
			change = c.Difference(previous)
		}
		if change != "" {
			m.update.Changes = append(m.update.Changes, fmt.Sprintf("capabilities of %s: %s", c.Runtime, change))
		}
	}
	return m.update, nil
}

type lockMaker struct {
	*objectLoader
	update  LockUpdate
	done    map[charts.Ref]bool
	refresh bool
}

// wantedChart is a chart to lock, and the first reference to it.
type wantedChart struct {
	ref charts.Ref
	by  func(strict.Fault)
}

// wantedCharts returns the charts that services refer to, sorted by name.
func (m *lockMaker) wantedCharts() (all []wantedChart) {
	for _, s := range m.Config.Services {
		collect := func(at string, k *config.ServiceKubernetes) {
			if k != nil && k.Kustomize != "" && s.Has(at+".kustomize") {
				all = append(all, m.inKustomization(s, at+".kustomize", k.Kustomize)...)
			}
			if k == nil || k.Helm == nil {
				return
			}
			report := func(fault strict.Fault) { m.reportFault(s, at+".helm", fault) }
			switch named, ok := m.mergedChart(s, at+".helm", k.Helm); {
			case ok && named.Locked():
				all = append(all, wantedChart{charts.RefOf(named.Chart, named.Repository, named.Version), report})
			case ok && !strings.Contains(named.Chart, "://"):
				all = append(all, m.ofDirectory(s, named.Chart, report)...)
			}
		}
		collect("kubernetes", s.Spec.Kubernetes)
		for i, o := range s.Spec.PerReleaseChannel {
			collect(strict.Index("perReleaseChannel", i)+".kubernetes", o.Kubernetes)
		}
	}
	slices.SortStableFunc(all, func(a, b wantedChart) int { return cmp.Compare(a.ref.String(), b.ref.String()) })
	return all
}

// inKustomization returns the charts of a kustomization and its bases.
func (m *lockMaker) inKustomization(s *config.Document[config.Service], at, name string) (all []wantedChart) {
	m.readAt(s, at, name, func(full string) []strict.Fault {
		found := &namedCharts{}
		g := &gatherer{fsys: m.FS, files: map[string][]byte{}, read: map[string]bool{}, locked: found}
		err := g.kustomization(full)
		for _, ref := range found.refs {
			all = append(all, wantedChart{ref, func(fault strict.Fault) { m.reportFault(s, at, fault) }})
		}
		if err != nil {
			return []strict.Fault{refusal("kustomize", "the kustomization cannot be built: ", err)}
		}
		return nil
	})
	return all
}

// ofDirectory returns the dependencies of a chart in a directory. A chart that cannot be read is reported when it is compiled.
func (m *lockMaker) ofDirectory(s *config.Document[config.Service], name string, report func(strict.Fault)) (all []wantedChart) {
	clean, fault := config.LocalFile(name)
	full := path.Join(path.Dir(s.File), clean)
	if info, err := fs.Stat(m.FS, full); fault != nil || err != nil || !info.IsDir() {
		return nil
	}
	found := &namedCharts{}
	_, _ = (&chartReader{fsys: m.FS, locked: found}).withDependencies(full, 0)
	for _, ref := range found.refs {
		all = append(all, wantedChart{ref, report})
	}
	return all
}

// namedCharts implements lockedCharts: it records the requested charts and returns none.
type namedCharts struct{ refs []charts.Ref }

func (n *namedCharts) lockedChart(named config.ServiceHelm) (*Chart, error) {
	n.refs = append(n.refs, charts.RefOf(named.Chart, named.Repository, named.Version))
	return nil, nil //nolint:nilnil // it is left out
}

// add locks one chart.
func (m *lockMaker) add(ctx context.Context, wanted wantedChart, old charts.Lock) {
	if m.done[wanted.ref] {
		return
	}
	m.done[wanted.ref] = true
	previous, locked := old.Find(wanted.ref)
	if locked && !m.refresh {
		m.update.Lock.Charts = append(m.update.Lock.Charts, previous)
		return
	}
	found, data, err := m.client().Resolve(ctx, wanted.ref)
	if err == nil {
		_, err = openEntry(data, found)
	}
	if err != nil {
		wanted.by(strict.Fault{Code: "chart", Message: fmt.Sprintf("chart %s cannot be locked: %v", wanted.ref, err)})
		return
	}
	m.update.Lock.Charts = append(m.update.Lock.Charts, found)
	if change := describeChange(previous, found, locked); change != "" {
		m.update.Changes = append(m.update.Changes, fmt.Sprintf("%s: %s", wanted.ref, change))
	}
}

// describeChange describes the change of a chart's entry; empty: no change.
func describeChange(old, current charts.Entry, locked bool) string {
	switch {
	case !locked:
		return fmt.Sprintf("%s, %s", current.Version, current.Digest)
	case old.Version != current.Version:
		return fmt.Sprintf("%s instead of %s, %s", current.Version, old.Version, current.Digest)
	case old.Digest != current.Digest:
		return fmt.Sprintf("the same version has another digest, %s instead of %s", current.Digest, old.Digest)
	case old != current:
		return "at another address"
	}
	return ""
}
